r"""Write shell scripts that measure a chosen set of workloads, sizes, schedulers and devices.

    python -m benchmarks generate --out results/run1 --workload treelstm-sick \
        --hidden 64,150 --batch-size 32,256 --scheduler depth,agenda,manual --data DIR
    bash results/run1/run_all.sh

There is one script for each workload, device and width, so that they can go to different machines,
and run_all.sh, which runs all and plots. Each writes NAME.jsonl beside itself, as "workloads"
prints it. A script whose NAME.jsonl is complete does nothing, so an interrupted run can continue.
On another machine, EDB_ROOT names the checkout and PYTHON the interpreter.
"""

import argparse
import shlex
from itertools import product
from pathlib import Path

from ..arguments import add_data_argument, add_mode_argument, listed, names, positive, sizes
from ..settings import MODES, RIVALS, SYSTEMS
from ..workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """#!/usr/bin/env bash
# Written by python -m benchmarks generate.
set -euo pipefail
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
root="${{EDB_ROOT:-{root}}}"
results="$here/{name}.jsonl"
if [[ -e "$results" ]]; then
    echo "{name}: is there already"
    exit 0
fi
python="${{PYTHON:-$(bash "$root/scripts/environment.sh")}}"
echo "{name}"
PYTHONPATH="$root" "$python" -m benchmarks workloads {arguments} >"$results.part"
mv "$results.part" "$results"
"""

RUN_ALL = """#!/usr/bin/env bash
# Written by python -m benchmarks generate.
set -uo pipefail
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
root="${{EDB_ROOT:-{root}}}"
status=0
for script in {scripts}; do
    bash "$here/$script" || {{ echo "$script failed" >&2; status=1; }}
done
python="${{PYTHON:-$(bash "$root/scripts/environment.sh")}}"
shopt -s nullglob
results=("$here"/*.jsonl)
if ((${{#results[@]}})); then
    PYTHONPATH="$root" "$python" -m benchmarks plots --out "$here" "${{results[@]}}" || status=1
fi
exit "$status"
"""


def run(options: argparse.Namespace) -> None:
    """Write the scripts that measure, run_all.sh last."""
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    root, paths = shlex.quote(str(ROOT)), []
    for workload, ctx, hidden in product(options.workload, options.ctx, options.hidden):
        systems = [
            name
            for name in options.scheduler
            if name not in RIVALS or name in WORKLOADS[workload].rivals
        ]
        if not systems:
            continue
        name = f'{workload}-{ctx.replace(":", "")}-h{hidden}'
        call = [
            workload,
            '--ctx',
            ctx,
            '--hidden',
            hidden,
            '--embed',
            options.embed or hidden,
            '--mode',
            _joined(options.mode),
            '--batch-size',
            _joined(options.batch_size),
            '--scheduler',
            _joined(systems),
            '--threads',
            options.threads,
            '--repeat',
            options.repeat,
            '--json',
        ]
        if options.data:
            call += ['--data', Path(options.data).resolve()]
        text = SCRIPT.format(
            root=root, name=name, arguments=' '.join(shlex.quote(str(part)) for part in call)
        )
        paths.append(_write(out / f'{name}.sh', text))
    paths.append(
        _write(
            out / 'run_all.sh',
            RUN_ALL.format(root=root, scripts=' '.join(shlex.quote(path.name) for path in paths)),
        )
    )
    print(f'{len(paths) - 1} scripts in {out}; run them with: bash {paths[-1]}')


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding='utf-8')
    path.chmod(0o755)
    return path


def _joined(parts) -> str:
    return ','.join(map(str, parts))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks generate``."""
    parser.add_argument('--out', required=True, metavar='DIR', help='where to write the scripts')
    parser.add_argument(
        '--workload',
        type=names(list(WORKLOADS)),
        default=sorted(WORKLOADS),
        metavar='NAME[,NAME…]',
        help='(default: all)',
    )
    parser.add_argument(
        '--hidden',
        type=sizes,
        default='150',
        metavar='H[,H…]',
        help='width of the cell (default: 150)',
    )
    parser.add_argument(
        '--embed', type=positive, metavar='D', help='width of the embedding (default: as --hidden)'
    )
    parser.add_argument(
        '--batch-size',
        type=sizes,
        default='1,32,64,256',
        metavar='N[,N…]',
        help='samples in a minibatch (default: 1,32,64,256)',
    )
    parser.add_argument(
        '--scheduler',
        type=names(SYSTEMS),
        metavar='NAME[,NAME…]',
        default='depth,agenda,unbatched-hybridized,manual',
        help='systems, as "workloads" names them, where a workload has them (default: %(default)s)',
    )
    add_mode_argument(parser, MODES)
    parser.add_argument(
        '--ctx',
        type=listed,
        default='cpu',
        metavar='cpu|gpu[:N][,…]',
        help='devices (default: cpu)',
    )
    add_data_argument(parser)
    parser.add_argument(
        '--threads',
        type=positive,
        default=1,
        metavar='T',
        help='threads of the operators (default: 1)',
    )
    parser.add_argument(
        '--repeat', type=positive, default=7, metavar='R', help='timed repeats (default: 7)'
    )
