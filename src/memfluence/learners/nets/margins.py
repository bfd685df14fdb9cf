"""Margins on the device where the scores are: codes and margins are far less to copy than scores."""

import numpy as np
import torch

_ROWS_AT_ONCE = 2**16


def margins(scores: torch.Tensor, labels: np.ndarray) -> np.ndarray:
    """Margins (..., n) float16, as `learners.outcomes` has them, of scores (..., n, n_classes) and codes (n,)."""
    limit, parts = torch.finfo(torch.float16).max, []
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        some = scores[..., start : start + _ROWS_AT_ONCE, :]
        of = torch.from_numpy(labels[start : start + _ROWS_AT_ONCE]).to(some.device).expand(some.shape[:-1])[..., None]
        own = some.gather(-1, of)[..., 0].double()
        others = some.scatter(-1, of, -torch.inf).amax(-1).double()
        parts.append((own - others).clamp(-limit, limit).half())
    return torch.cat(parts, -1).cpu().numpy()
