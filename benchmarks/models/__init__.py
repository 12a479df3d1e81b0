"""Whole models at real size, beside other compilers and runtimes, in processes of their own."""
