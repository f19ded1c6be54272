"""Where people work: Ax, Optuna, Ray, scikit-learn, Xopt.

Each module needs the extra of its name, and is imported by name.
"""
