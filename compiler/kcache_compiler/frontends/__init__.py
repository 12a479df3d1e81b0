"""Frontends: program bytes of a stated format to one verified, legalized native module.

``program.read_program`` reads one. Importing this package alone loads no frontend, nor NumPy.
"""
