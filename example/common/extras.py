"""gluonnlp, which some examples need; where it is missing, they end with a sentence that says so."""

__all__ = ['nlp']

try:
    import gluonnlp as nlp
except ModuleNotFoundError as error:
    if error.name != 'gluonnlp':
        raise
    raise SystemExit(
        "this example needs gluonnlp: install it with `pip install '.[cpu,example]'`"
    ) from None
