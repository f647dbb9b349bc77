"""The commands, one thin module each; what they accept is in `arguments`.

Only here are command lines read, exit codes made, and packages brought together (by `training`).
"""
