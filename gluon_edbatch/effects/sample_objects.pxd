# The types of sample_objects.py for Cython; without it the module is ordinary Python.
cimport cython

cdef object ATOMS

@cython.locals(last=object, some=list, number=object, changes=bint)
cdef dict _by_class(object several, dict seen)
