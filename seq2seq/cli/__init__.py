"""The commands, one thin module each; `guests` brings the rooms together for a training.

Only here are command lines read and exit codes made.
"""
