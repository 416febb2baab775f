"""Draw on a page, which matplotlib writes as an SVG file."""

import colorsys
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Union
from xml.dom import minidom

LINE = 18  # height of a line of text
_MARGIN = 30
_DPI = 96  # pixels of CSS in an inch
_STYLE = {
    'font.size': 9,  # points, which are 12 pixels
    'font.sans-serif': ['DejaVu Sans', 'Verdana'],  # equally wide
    'path.simplify': False,
    'svg.fonttype': 'none',
    'svg.hashsalt': 'gluon_edbatch',  # the same drawing gives the same file
}


def draw(path: Union[str, Path], fill: Callable[['Page'], None]) -> None:
    """Write the page that `fill` draws on, once it is complete."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "edb.visualize needs matplotlib: `pip install '.[cpu,pictures]'`"
        ) from None
    with style.context(['default', _STYLE]), warnings.catch_warnings():
        # A viewer's fonts can have letters that matplotlib's own font lacks.
        warnings.filterwarnings('ignore', 'Glyph')
        page = Page(Figure(figsize=(1, 1)).add_axes((0, 0, 1, 1)), _DPI, _DPI)
        page.axes.axis('off')
        fill(page)
        made = page.svg()
    Path(path).write_text(made, encoding='utf-8')


class Page:
    """Axes whose coordinates are pixels, to the right and downwards.

    Objects may be anywhere: the file shows all of them.
    """

    def __init__(self, axes: Any, width: float, height: float) -> None:
        axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
        self.axes = axes
        self.y = 0.0  # middle of the next line of text
        self._titles: dict[str, Sequence[str]] = {}

    def box(self, x: float, y: float, width: float, height: float) -> 'Page':
        """Return a framed page within the outermost one, with this upper left corner."""
        # The outermost axes are one inch wide and high; insets are in parts of them, upwards.
        bounds = (x / _DPI, 1 - (y + height) / _DPI, width / _DPI, height / _DPI)
        return Page(self.axes.inset_axes(bounds), width, height)

    def title(self, artist: Any, *titles: str) -> None:
        """Set what is shown when the artist, or each of its markers, is pointed at."""
        artist.set_gid(f'titled{len(self._titles)}')
        self._titles[artist.get_gid()] = titles

    def text(self, x: float, y: float, text: str, **style: Any) -> Any:
        """Write one line of text, whose middle is at `y`."""
        style = {'va': 'center_baseline', 'parse_math': False, **style}
        return self.axes.text(x, y, _printable(text), **style)

    def write(self, text: str, x: float = 0.0, **style: Any) -> None:
        """Write a line of text below the one before."""
        self.text(x, self.y, text, **style)
        self.y += LINE

    def markers(self, x: Any, y: Any, marker: str, colour: str, size: float) -> Any:
        """Draw a marker of this size at each of some places."""
        points = size * 72 / _DPI
        look = dict(markersize=points, markeredgewidth=points / 18, markeredgecolor='#333333')
        return self.axes.plot(x, y, marker, color=colour, **look)[0]

    def legend(
        self, x: float, entries: Sequence[tuple[str, str, str]], most: int, rest: str
    ) -> None:
        """Write a line for each (marker, colour, text), but no more lines than `most`."""
        shown = entries if len(entries) <= most else entries[: most - 1]
        for marker, fill, text in shown:
            self.markers(x + 6, self.y, marker, fill, 11)
            self.write(text, x + 20)
        if len(shown) < len(entries):
            self.write(f'and {len(entries) - len(shown)} more {rest}', x + 20)

    def svg(self) -> str:
        """Return the page as SVG, with its titles, which matplotlib cannot write."""
        for artist in self.axes.findobj():
            artist.set_clip_on(False)
        file, margin = io.BytesIO(), _MARGIN / _DPI
        metadata = dict.fromkeys(('Creator', 'Date', 'Format', 'Type'))
        self.axes.figure.savefig(
            file, format='svg', bbox_inches='tight', pad_inches=margin, metadata=metadata
        )
        document = minidom.parseString(file.getvalue())
        for group in document.getElementsByTagName('g'):
            titles = self._titles.get(group.getAttribute('id'), ())
            for element, text in zip(group.getElementsByTagName('use') or [group], titles):
                title = document.createElement('title')
                lines = '\n'.join(map(_printable, text.splitlines()))
                title.appendChild(document.createTextNode(lines))
                element.insertBefore(title, element.firstChild)
        return document.toxml()


def colour(number: int) -> str:
    """Return a colour as #rrggbb; hues of successive numbers are a golden angle apart."""
    hue, lightness = number * 137.508 % 360 / 360, (0.72, 0.82, 0.62)[number // 8 % 3]
    parts = colorsys.hls_to_rgb(hue, lightness, 0.7)
    return '#' + ''.join([f'{round(255 * part):02x}' for part in parts])


def _printable(text: str) -> str:
    """Return the text without control characters, which XML and lines of text cannot have."""
    return ''.join([letter if letter.isprintable() else ' ' for letter in text])
