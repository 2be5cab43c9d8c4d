"""What a vetted source may name (`coevo.sandbox.vetting`): functions and methods that only compute."""

NUMPY = (
    "abs", "absolute", "add", "all", "allclose", "amax", "amin", "any", "append", "apply_along_axis", "arange",
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition",
    "argsort", "argwhere", "around", "array", "array_equal", "array_split", "asarray", "atleast_1d", "atleast_2d",
    "average", "bincount", "bool_", "broadcast_to", "cbrt", "ceil", "choose", "clip", "column_stack", "concatenate",
    "convolve", "copy", "corrcoef", "cos", "cosh", "count_nonzero", "cov", "cross", "cumprod", "cumsum", "deg2rad",
    "degrees", "delete", "diag", "diag_indices", "diagonal", "diff", "digitize", "divide", "divmod", "dot",
    "dstack", "e", "ediff1d", "einsum", "equal", "exp", "exp2", "expand_dims", "expm1", "extract", "eye", "fabs",
    "fill_diagonal", "flatnonzero", "flip", "fliplr", "flipud", "float32", "float64", "floor", "floor_divide",
    "fmax", "fmin", "fmod", "full", "full_like", "gradient", "greater", "greater_equal", "heaviside", "histogram",
    "hstack", "hypot", "identity", "inf", "inner", "insert", "int32", "int64", "interp", "intersect1d", "isclose",
    "isfinite", "isin", "isinf", "isnan", "ix_", "kron", "less", "less_equal", "lexsort", "linspace", "log",
    "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logspace",
    "matmul", "max", "maximum", "mean", "median", "meshgrid", "min", "minimum", "mod", "multiply", "nan",
    "nan_to_num", "nanargmax", "nanargmin", "nanmax", "nanmean", "nanmin", "nanstd", "nansum", "nanvar", "ndim",
    "negative", "newaxis", "nonzero", "not_equal", "ones", "ones_like", "outer", "partition", "percentile", "pi",
    "piecewise", "positive", "power", "prod", "ptp", "quantile", "rad2deg", "radians", "ravel", "reciprocal",
    "remainder", "repeat", "reshape", "roll", "rot90", "round", "searchsorted", "select", "setdiff1d", "shape",
    "sign", "sin", "sinc", "sinh", "size", "sort", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract",
    "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "trace", "transpose",
    "trapezoid", "tri", "tril", "tril_indices", "triu", "triu_indices", "true_divide", "trunc", "union1d", "unique",
    "unravel_index", "var", "vdot", "vstack", "where", "zeros", "zeros_like",
)  # fmt: skip
"""Of numpy."""

METHODS = (
    "T", "all", "any", "argmax", "argmin", "argpartition", "argsort", "astype", "choose", "clip", "conj", "copy",
    "cumprod", "cumsum", "diagonal", "dot", "dtype", "fill", "flatten", "imag", "item", "itemsize", "max", "mean",
    "min", "ndim", "nonzero", "partition", "prod", "ravel", "real", "repeat", "reshape", "round", "searchsorted",
    "shape", "size", "sort", "squeeze", "std", "sum", "swapaxes", "take", "tolist", "trace", "transpose", "var",
    "accumulate", "reduce", "add", "append", "clear", "count", "difference", "discard", "endswith", "extend",
    "find", "get", "index", "insert", "intersection", "is_integer", "isdigit", "isdisjoint", "issubset",
    "issuperset", "items", "join", "keys", "lower", "pop", "remove", "replace", "reverse", "rfind", "setdefault",
    "split", "startswith", "strip", "symmetric_difference", "union", "update", "upper", "values", "bit_length",
    "appendleft", "elements", "extendleft", "most_common", "popleft", "rotate",
)  # fmt: skip
"""Of arrays, lists, dictionaries, sets, texts and deques; any object may have them."""

BUILTINS = (
    "abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "int",
    "isinstance", "iter", "len", "list", "map", "max", "min", "next", "pow", "print", "range", "repr", "reversed",
    "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip", "ArithmeticError", "AssertionError",
    "Exception", "FloatingPointError", "IndexError", "KeyError", "LookupError", "OverflowError", "RuntimeError",
    "StopIteration", "TypeError", "ValueError", "ZeroDivisionError",
)  # fmt: skip
"""Of Python."""
