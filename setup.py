"""Everything that describes the package is in setup.cfg."""
from setuptools import setup

setup()
