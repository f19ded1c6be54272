def pytest_configure(config):
    config.addinivalue_line("markers", "thread_unsafe: of scikit-learn's tests, which know a plugin for threads")
