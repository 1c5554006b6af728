#!/usr/bin/env bash
# What the guides show is what their commands print; and the samples of README.md and docs/cli.md that depend on no machine.
# The guide to the library is held by tests/install, which has an installed one.
source "$(dirname "$0")/common.sh"
source "$here/pages.sh"
root=$here/../..
unset HEADROOM_ISA
printf "%s\n" "{'loss': 2.31, 'epoch': 0.4}" "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.21 GiB is free. Process 4242 has 22.42 GiB memory in use. Of the allocated memory 21.50 GiB is allocated by PyTorch, and 421.00 MiB is reserved by PyTorch but unallocated." >"$page_place/train.log"
for page in fit-a-model out-of-memory read-a-snapshot; do check_page "$root/docs/guides/$page.md"; done
if sanitized; then
  echo 'skipped: the guide to fine-tuning shows the losses and the memory of a program without sanitizers'
elif [ "$(uname -m)" = x86_64 ]; then
  export HEADROOM_ISA=base # one kind of arithmetic on all of them
  check_page "$root/docs/guides/fine-tune.md"
  unset HEADROOM_ISA
else
  echo 'skipped: losses of the guide to fine-tuning are those of x86-64'
fi
for page in README.md docs/cli.md; do check_page "$root/$page" '^headroom (plan .*--device|explain|inspect|replay)'; done
finish
