"""Draw docs/history.svg from the tables of docs/history.md: the gain of each release.

    python -m benchmarks.draw_history

A heading of the page is a panel. A row's first cell is a workload, and its last cells are ratios,
the first number of each.
"""

import re
import sys
from pathlib import Path

from .plots import new_figure, save

PAGE = Path(__file__).resolve().parents[1] / 'docs' / 'history.md'
RATIO = re.compile(r'[\d.]+')


def tables(text: str) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return the header and the rows of the table under each heading."""
    found = {}
    for section in text.split('\n## ')[1:]:
        rows = [line.strip('|').split('|') for line in section.splitlines() if line.startswith('|')]
        found[section.partition('\n')[0]] = rows[0], rows[2:]
    return found


def main() -> int:
    """Run the command line, which may name another file than the documentation's."""
    sections = tables(PAGE.read_text(encoding='utf-8'))
    figure, panels = new_figure(len(sections), 5)
    for panel, (title, (header, rows)) in zip(panels, sections.items()):
        names, modes = [row[0].replace('`', '') for row in rows], header[1:]
        height = 0.8 / len(modes)
        for number, mode in enumerate(modes):
            places = [
                place + (number - (len(modes) - 1) / 2) * height for place in range(len(rows))
            ]
            ratios = [float(RATIO.match(row[1 + number])[0]) for row in rows]
            panel.barh(places, ratios, height, label=mode)
        panel.set_yticks(range(len(names)), names)
        panel.axvline(1, color='gray', linestyle=':')
        panel.invert_yaxis()
        panel.set(title=title, xlabel='speed, divided by that of the state before')
        panel.legend(fontsize='small')
    save(figure, Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE.with_suffix('.svg'))
    return 0


if __name__ == '__main__':
    sys.exit(main())
