"""Generate ``gluon_edbatch_core/native/src/opcodes.h``: declarations that C++ and Python share."""

from enum import IntEnum

from .instructions import BINARY, UNARY, Function, Opcode, Place, Product, Recurrence, Spread

_READS = {'': 'kFromNothing', 'x': 'kFromArgument', 'y': 'kFromResult', 'xy': 'kFromArgument'}
_REALS = ('', 'first', 'first, second')
_HEAD = """\
// Made by `python -m gluon_edbatch.ops --header` from the declarations in gluon_edbatch/ops.
// clang-format off
#pragma once

#include <cstdint>
#include <stdexcept>

#include "math_functions.h"

namespace edb {
"""
_SLOPES = """enum Read { kFromNothing, kFromArgument, kFromResult };

struct Slope {  // a function's name for messages, and what its gradient reads
  const char* name;
  Read reads;
};
"""


def header() -> str:
    """Return the text of ``opcodes.h``."""
    enums = [_enum(each) for each in (Opcode, Product, Recurrence, Place, Spread)]
    return '\n'.join(
        [
            _HEAD,
            *enums,
            _SLOPES,
            _switch('unary', ', T first, T second', UNARY),
            _switch('binary', '', BINARY),
            '}  // namespace edb\n',
        ]
    )


def _enum(numbers: type[IntEnum]) -> str:
    names = ',\n'.join(f'  k{_camel(each.name)} = {each.value}' for each in numbers)
    return f'enum {numbers.__name__} : int64_t {{\n{names}\n}};\n'


def _camel(name: str) -> str:
    return name.title().replace('_', '')


def _switch(kind: str, numbers: str, functions: list[Function]) -> str:
    cases = '\n'.join(
        f'    case {each.number}: body({each.name}<T>{{{_REALS[each.reals]}}}, '
        f'Slope{{"{each.name}", {_READS[each.needs]}}}); break;'
        for each in functions
    )
    return f"""// Calls body(function, slope) with the function that `which` stands for.
template <typename T, typename Body>
void with_{kind}(int64_t which{numbers}, Body body) {{
  switch (which) {{
{cases}
    default: throw std::runtime_error("unknown elementwise function");
  }}
}}
"""
