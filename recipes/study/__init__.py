"""This project's study of the paper: what of its claims held, what the methods cost beside goals and floors."""
