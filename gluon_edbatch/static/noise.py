"""Operators that draw random numbers.

What they draw for a batch is one draw for each of its rows only if their result has the rows: noise
that depends on no argument of a call is to be drawn call by call.
"""
from typing import Dict

# These draw in training, unless they are told to always.
_REGULARISERS = frozenset('Dropout LeakyReLU RNN'.split())
_NOISE = frozenset('''
    _shuffle _npi_bernoulli _npi_choice _npi_exponential _npi_gamma _npi_gumbel _npi_logistic
    _npi_multinomial _npi_normal _npi_normal_n _npi_pareto _npi_rayleigh _npi_uniform
    _npi_uniform_n _npi_weibull
'''.split())
_PREFIXES = ('_random_', '_sample_', '_image_random_')


def may_draw(op: str) -> bool:
    """Whether an operator draws random numbers in some mode."""
    return op in _REGULARISERS or op in _NOISE or (
        op.startswith(_PREFIXES) and not op.startswith('_random_pdf_'))


def draws(op: str, attrs: Dict[str, str], training: bool) -> bool:
    """Whether it draws random numbers in this mode."""
    if op == 'LeakyReLU' and attrs.get('act_type') != 'rrelu':
        return False
    if op in _REGULARISERS:
        return training or attrs.get('mode') == 'always'
    return may_draw(op)
