"""The commands, one thin module each; what they accept is in `arguments`.

Only here are command lines read, exit codes made, and rooms brought together (by `training`).
"""
