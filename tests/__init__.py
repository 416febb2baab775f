"""Tests. A package, as some distributions install a package of this name, too."""
