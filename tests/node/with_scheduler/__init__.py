"""Tests of the installation with the scheduler of the chart, which is started once for all of them.

The folder is the last one by its name. Its tests restart and remove all programs. The rows that wait while the other
files run (`slow_rows`) would lose what the dispatcher has seen of their Pods.
"""
