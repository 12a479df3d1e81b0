"""Tests of the compiler library."""
