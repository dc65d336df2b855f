"""The signature of a function, without a look at what its annotations mean.

Python 3.14 evaluates annotations when they are asked for, and a name in them may exist for type checkers only.
"""

import functools
import inspect
import sys

if sys.version_info >= (3, 14):
    from annotationlib import Format

    signature_of = functools.partial(inspect.signature, annotation_format=Format.STRING)
else:
    signature_of = inspect.signature
