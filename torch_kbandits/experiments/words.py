"""The words that say how finished runs are shown, which the command line needs before it imports anything heavy."""

#: What tables may be.
FORMATS = ("table", "markdown", "csv")
#: What is drawn around curves.
BANDS = ("quartiles", "error", "deviation", "seeds", "none")
#: Of regret.
SCALES = ("auto", "linear", "log")
