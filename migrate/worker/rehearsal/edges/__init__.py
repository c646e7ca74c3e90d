"""The edges of a script's world, one file each, found by their place here; the name of the file is the name of the edge.

    stand_in(stage)         a context manager in which the stand-ins hold
    lesson(stage, error)    after an attempt was stopped: learn something by which the next comes further; else false
    remedy(stage, error)    what the user can do about this error, in words; None where it is not this edge's

The last two may be left out.
"""
