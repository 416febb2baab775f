"""The version, which setuptools reads without importing the package."""

__version__ = '0.1.0'
