"""Import gluonnlp, which some examples need; without it, end and say how to install it."""

__all__ = ['nlp']

try:
    import gluonnlp as nlp
except ModuleNotFoundError as error:
    if error.name != 'gluonnlp':
        raise
    raise SystemExit(
        "this example needs gluonnlp: install it with `pip install '.[cpu,example]'`"
    ) from None
