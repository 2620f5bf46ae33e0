"""Study of the paper by this project: what of its claims held, what the methods cost next to goals
and floors.
"""
