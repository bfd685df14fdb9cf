"""Training: from a dataset and a learner to trials on disk.

`options` holds what one may choose, `campaign` prepares and runs the trials, `planning` says what they will take.
Importing this package loads none of them, because the command line reads the options before anything heavy is needed.
"""
