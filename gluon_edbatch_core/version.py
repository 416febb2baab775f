"""The version, where setuptools finds it without importing the package."""

__version__ = '0.3.0'
