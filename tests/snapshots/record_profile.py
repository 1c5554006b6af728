"""Records what PyTorch's own code makes of a profile: read/torch-profiler.pickle.gz, and what must be found in it. Needs
PyTorch (2.13 made the files); a CPU will do.

    python tests/snapshots/record_profile.py
"""
import gzip
import pickle

import torch
from torch.cuda._memory_viz import _profile_to_snapshot
from torch.profiler import ProfilerActivity, profile

import read


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(16, 64), torch.randint(0, 10, (16,))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as p:
        for _ in range(2):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    snapshot = _profile_to_snapshot(p)
    read.write("torch-profiler.pickle.gz", gzip.compress(pickle.dumps(snapshot, protocol=4), mtime=0), read.expect(snapshot, "pytorch-profiler"))


if __name__ == "__main__":
    main()
