"""The torch side of the built-in learners. Loaded when one of them trains, never before: these files import torch."""
