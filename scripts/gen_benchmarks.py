#!/usr/bin/env python3
"""Write shell scripts that measure a chosen set of workloads, sizes, schedulers and devices.

    python scripts/gen_benchmarks.py --out results/run1 --workload treelstm-sick \\
        --hidden 64,150 --batch-size 32,256 --scheduler depth,agenda,manual --data DIR
    bash results/run1/run_all.sh

One script for each workload, device and width, so that they can go to different machines, and
run_all.sh, which runs all and plots. Each writes NAME.jsonl beside itself, as benchmark.py prints
it; a script whose NAME.jsonl is complete does nothing, so that an interrupted run goes on. On
another machine, EDB_ROOT says where the checkout is and PYTHON which interpreter to use.
"""
import argparse
import shlex
import sys
from itertools import product
from pathlib import Path
from typing import List, Optional, Sequence

from bench.settings import MODES, RIVALS, SYSTEMS
from bench.workloads import WORKLOADS

SCRIPT = '''#!/usr/bin/env bash
# Written by scripts/gen_benchmarks.py.
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
"$python" "$root/scripts/benchmark.py" {arguments} >"$results.part"
mv "$results.part" "$results"
'''

RUN_ALL = '''#!/usr/bin/env bash
# Written by scripts/gen_benchmarks.py.
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
    "$python" "$root/scripts/plot_benchmarks.py" --out "$here" "${{results[@]}}" || status=1
fi
exit "$status"
'''


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for option, known in (('workload', WORKLOADS), ('mode', MODES), ('scheduler', SYSTEMS)):
        unknown = [name for name in getattr(options, option) if name not in known]
        if unknown:
            parser.error(f'--{option}: {unknown[0]!r} is none of {", ".join(known)}')
    write(options)
    return 0


def write(options: argparse.Namespace) -> List[Path]:
    """The scripts, run_all.sh last."""
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    root = shlex.quote(str(Path(__file__).resolve().parents[1]))
    paths = []
    for workload, ctx, hidden in product(options.workload, options.ctx, options.hidden):
        systems = [name for name in options.scheduler
                   if name not in RIVALS or name in WORKLOADS[workload].rivals]
        if not systems:
            continue
        name = f'{workload}-{ctx.replace(":", "")}-h{hidden}'
        embed = options.embed or hidden
        call = [workload, '--ctx', ctx, '--hidden', hidden, '--embed', str(embed),
                '--mode', ','.join(options.mode), '--batch-size', ','.join(options.batch_size),
                '--scheduler', ','.join(systems), '--threads', options.threads,
                '--repeat', options.repeat, '--json']
        if options.data:
            call += ['--data', str(Path(options.data).resolve())]
        text = SCRIPT.format(root=root, name=name,
                             arguments=' '.join(shlex.quote(str(part)) for part in call))
        paths.append(_write(out / f'{name}.sh', text))
    paths.append(_write(out / 'run_all.sh', RUN_ALL.format(
        root=root, scripts=' '.join(shlex.quote(path.name) for path in paths))))
    print(f'{len(paths) - 1} scripts in {out}; run them with: bash {paths[-1]}')
    return paths


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding='utf-8')
    path.chmod(0o755)
    return path


def _list(text: str) -> List[str]:
    return text.split(',')


def _numbers(text: str) -> List[str]:
    for part in text.split(','):
        if not part.isdigit() or int(part) < 1:
            raise argparse.ArgumentTypeError(f'{part!r} is no number from 1 on')
    return text.split(',')


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', required=True, metavar='DIR', help='where to write the scripts')
    parser.add_argument('--workload', type=_list, default=sorted(WORKLOADS), metavar='NAME,…',
                        help='default: all')
    parser.add_argument('--hidden', type=_numbers, default=['150'], metavar='H,…',
                        help='default: 150')
    parser.add_argument('--embed', type=int, metavar='D', help='default: as --hidden')
    parser.add_argument('--batch-size', type=_numbers, default=['1', '32', '64', '256'],
                        metavar='N,…', help='default: 1,32,64,256')
    parser.add_argument('--scheduler', type=_list, metavar='NAME,…',
                        default=['depth', 'agenda', 'unbatched-hybridized', 'manual'],
                        help='systems, as benchmark.py names them, where a workload has them '
                             '(default: depth,agenda,unbatched-hybridized,manual)')
    parser.add_argument('--mode', type=_list, default=list(MODES), metavar='train,infer',
                        help='default: both')
    parser.add_argument('--ctx', type=_list, default=['cpu'], metavar='cpu,gpu:0,…',
                        help='devices (default: cpu)')
    parser.add_argument('--data', metavar='DIR', help='data sets (default: embedded samples)')
    parser.add_argument('--threads', default='1', metavar='T', help='default: 1')
    parser.add_argument('--repeat', default='7', metavar='R', help='default: 7')
    return parser


if __name__ == '__main__':
    sys.exit(main())
