"""Frontends: program bytes of a stated format to one verified function of StableHLO, or of linalg.

``program.read_program`` reads one. Importing this package alone loads no frontend, nor NumPy.
"""
