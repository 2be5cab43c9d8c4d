"""What a vetted source may name (`coevo.sandbox.vetting`): it can compute with numbers and nothing else."""

MANY = 99
"""Arguments by position: as many as one likes."""

NUMPY = {
    **dict.fromkeys((
        "abs", "absolute", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "argwhere", "array",
        "asarray", "cbrt", "ceil", "column_stack", "cos", "cosh", "deg2rad", "degrees", "exp", "exp2", "expm1",
        "fabs", "flatnonzero", "floor", "hstack", "identity", "isfinite", "isinf", "isnan", "log", "log10", "log1p",
        "log2", "logical_not", "nan_to_num", "ndim", "negative", "nonzero", "ones", "ones_like", "positive",
        "rad2deg", "radians", "ravel", "reciprocal", "shape", "sign", "sin", "sinc", "sinh", "sqrt", "square",
        "tan", "tanh", "trunc", "vstack", "zeros", "zeros_like",
    ), 1),
    **dict.fromkeys((
        "add", "all", "amax", "amin", "any", "arctan2", "argmax", "argmin", "around", "broadcast_to", "concatenate",
        "convolve", "count_nonzero", "cumprod", "cumsum", "diag", "divide", "dot", "equal", "expand_dims", "flip",
        "floor_divide", "fmax", "fmin", "fmod", "full", "full_like", "greater", "greater_equal", "heaviside",
        "hypot", "inner", "less", "less_equal", "lexsort", "logaddexp", "logical_and", "logical_or", "logical_xor",
        "matmul", "max", "maximum", "mean", "median", "min", "minimum", "mod", "multiply", "nanargmax", "nanargmin",
        "nanmax", "nanmean", "nanmin", "nanstd", "nansum", "nanvar", "not_equal", "outer", "power", "prod", "ptp",
        "remainder", "reshape", "round", "size", "squeeze", "stack", "std", "subtract", "sum", "tile", "transpose",
        "tril", "triu", "true_divide", "union1d", "unravel_index", "var", "vdot",
    ), 2),
    **dict.fromkeys((
        "append", "arange", "argsort", "bincount", "clip", "corrcoef", "delete", "digitize", "ediff1d", "eye",
        "fill_diagonal", "histogram", "percentile", "quantile", "repeat", "roll", "select", "setdiff1d", "sort",
        "swapaxes", "take", "tensordot", "tri", "where",
    ), 3),
    **dict.fromkeys((
        "argpartition", "average", "diagonal", "insert", "intersect1d", "isin", "partition", "searchsorted",
        "trace", "trapezoid",
    ), 4),
    **dict.fromkeys((
        "allclose", "diff", "isclose", "linspace", "logspace", "unique",
    ), 5),
    **dict.fromkeys((
        "cross", "interp",
    ), 6),
    **dict.fromkeys((
        "cov",
    ), 7),
    **dict.fromkeys((
        "atleast_1d", "atleast_2d", "gradient", "ix_", "meshgrid",
    ), MANY),
}  # fmt: skip
"""Functions of numpy, where they are called: name → arguments by position, before those that are a type, an order or
memory to write to. A test compares them with numpy's own signatures."""

TYPED = (
    "array", "asarray", "cumprod", "cumsum", "eye", "full", "full_like", "identity", "linspace", "logspace", "mean",
    "nanmean", "nanstd", "nansum", "nanvar", "ones", "ones_like", "prod", "std", "sum", "trace", "tri", "var",
    "zeros", "zeros_like",
)  # fmt: skip
"""Of these, those that take the type of an array as the argument after."""

MATH = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "comb", "copysign", "cos", "cosh",
    "degrees", "dist", "erf", "erfc", "exp", "expm1", "fabs", "factorial", "floor", "fmod", "fsum", "gamma", "gcd",
    "hypot", "isclose", "isfinite", "isinf", "isnan", "isqrt", "lgamma", "log", "log10", "log1p", "log2", "perm",
    "pow", "prod", "radians", "remainder", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
"""Functions of math, where they are called."""

METHODS = {
    **dict.fromkeys((
        "bit_length", "clear", "conj", "copy", "flatten", "is_integer", "items", "keys", "nonzero", "ravel",
        "reverse", "tolist", "values",
    ), 0),
    **dict.fromkeys((
        "add", "all", "any", "append", "argmax", "argmin", "cumprod", "cumsum", "discard", "dot", "extend",
        "isdisjoint", "issubset", "issuperset", "max", "mean", "min", "prod", "remove", "round", "searchsorted",
        "sort", "squeeze", "std", "sum", "symmetric_difference", "var",
    ), 1),
    **dict.fromkeys((
        "argpartition", "argsort", "clip", "get", "insert", "pop", "repeat", "setdefault", "swapaxes", "take",
    ), 2),
    **dict.fromkeys((
        "count", "diagonal", "index", "trace",
    ), 3),
    **dict.fromkeys((
        "difference", "intersection", "item", "reshape", "transpose", "union", "update",
    ), MANY),
}  # fmt: skip
"""Of arrays, lists, dictionaries and sets, where they are called, as `NUMPY`; any object may have them."""

BUILTINS = (
    "abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "float", "frozenset", "int", "len",
    "list", "max", "min", "pow", "range", "reversed", "round", "set", "sorted", "sum", "tuple", "zip",
)  # fmt: skip
"""Functions of Python, where they are called."""

EXCEPTIONS = (
    "ArithmeticError", "AssertionError", "Exception", "FloatingPointError", "IndexError", "KeyError", "LookupError",
    "OverflowError", "RuntimeError", "TypeError", "ValueError", "ZeroDivisionError",
)  # fmt: skip
"""Where they are raised, caught or made."""

TYPES = (
    "float64", "float32", "int64", "int32", "bool_",
)  # fmt: skip
"""Of arrays, as an argument."""

CONSTANTS = (
    "e", "inf", "nan", "newaxis", "pi", "tau",
)  # fmt: skip
"""Of numpy and math."""

VALUES = (
    "T", "imag", "ndim", "real", "shape", "size",
)  # fmt: skip
"""Attributes that are read."""

KEYWORDS = (
    "axis", "keepdims", "ddof", "default", "atol", "rtol", "decimals", "endpoint", "num", "indices", "minlength", "k",
)  # fmt: skip
"""Arguments by name of functions of numpy."""

NAMED = {
    "enumerate": ("start",), **dict.fromkeys(("max", "min"), ("axis", "default", "key", "keepdims")),
    "round": ("decimals",), "sort": ("axis", "key", "kind", "reverse"), "sorted": ("key", "reverse"),
    "sum": ("axis", "dtype", "keepdims", "start"), "prod": ("axis", "dtype", "keepdims", "start"),
    "searchsorted": ("side",), "argsort": ("axis", "kind"), "argpartition": ("axis",), "repeat": ("axis",),
    **dict.fromkeys(("all", "any", "argmax", "argmin", "squeeze", "take"), ("axis", "keepdims")),
    **dict.fromkeys(("cumprod", "cumsum", "mean", "std", "var"), ("axis", "ddof", "dtype", "keepdims")),
}  # fmt: skip
"""Arguments by name of other functions and of methods: none but these, since `dict` and `update` make text of any."""

ITERTOOLS = ("accumulate", "chain", "combinations", "pairwise", "permutations", "product")
"""Functions of itertools, where they are called."""

WORDS = {"kind": ("stable", "quicksort", "mergesort", "heapsort"), "side": ("left", "right")}
"""Arguments by name that may be one of these texts."""

TYPING = {
    "Any": (1, 0), "Callable": (1, 0), "Dict": (2, 2), "Iterable": (1, 1), "List": (1, 1), "Mapping": (2, 2),
    "Optional": (1, 1), "Sequence": (1, 1), "Set": (1, 1), "Tuple": (0, 99), "Union": (1, 99),
}  # fmt: skip
"""Names of `typing` for annotations, with the fewest and the most types in brackets behind them: others raise."""
