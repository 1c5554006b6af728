#!/usr/bin/env bash
# Records what PyTorch's allocator is asked in the training jobs of jobs.json: makes the environment (PyTorch's CUDA wheel without NVIDIA's libraries,
# four versions of transformers, the fake device) where it is missing, then runs record.py. README.md says what comes out.
#   tests/memory/record.sh WORK [NAME...]     a folder for about 12 GB; names: only those jobs
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
shift
torch=2.14.1
packages=("transformers==5.23.0" "accelerate==1.15.0" "peft==0.21.2" "bitsandbytes==0.50.2")
# transformers: and what it wants in another version than the newest does
older=("4.46.3 tokenizers==0.20.3 huggingface_hub==0.36.0" "4.49.0 tokenizers==0.21.4 huggingface_hub==0.36.0" "4.57.3 tokenizers==0.22.1 huggingface_hub==0.36.0")
pip=$work/venv/bin/pip
site() { "$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

if [[ ! -f $work/venv/ready ]]; then
  python3 -m venv "$work/venv"
  "$pip" install -q "torch==$torch" numpy psutil safetensors requests "transformers==5.23.0"
  mkdir -p "$work/include"
  cp -r "$(site)"/nvidia/cu13/include/. "$work/include/"
  cp -r "$(site)/triton/backends/nvidia/include/crt" "$work/include/"
  # PyTorch finds NVIDIA's libraries before ours as long as they are there.
  "$pip" list --format freeze | sed -n 's/^\(nvidia-[^=]*\|cuda-[^=]*\)=.*/\1/p' | xargs "$pip" uninstall -q -y
  "$pip" install -q --no-deps "${packages[@]}"
  touch "$work/venv/ready"
fi
for line in "${older[@]}"; do
  read -r version wants <<<"$line"
  if [[ -d $work/transformers-$version ]]; then continue; fi
  # shellcheck disable=SC2086  # several packages
  "$pip" install -q --no-deps --target "$work/transformers-$version" "transformers==$version" $wants
done
if [[ ! -d $work/deepspeed ]]; then
  "$pip" install -q --no-deps --target "$work/deepspeed" "deepspeed==0.19.8" "einops==0.8.1" "hjson==3.1.0" "msgpack==1.1.2" "py-cpuinfo==9.0.0" \
    pydantic pydantic_core annotated_types typing_inspection
fi
if [[ ! -d $work/liger ]]; then
  "$pip" install -q --no-deps --target "$work/liger" liger-kernel==0.8.5
fi
if [[ ! -d $work/trl ]]; then
  "$pip" install -q --no-deps --target "$work/trl" trl==1.16.0 datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 dill==0.4.1 multiprocess==0.70.19 \
    xxhash==4.1.0 python-dateutil==4.0.0 six==1.17.0 pytz==2026.6 tzdata==2026.6 aiohttp==3.14.5
fi
# torchtune with the torchao of its days: newer ones have moved what it imports.
if [[ ! -d $work/torchtune ]]; then
  "$pip" install -q --no-deps --target "$work/torchtune" torchtune==0.6.1 torchao==0.10.0 torchdata==0.11.0 omegaconf==2.3.0 antlr4-python3-runtime==4.9.3 \
    sentencepiece==0.2.3 tiktoken==0.14.0 blobfile==3.3.0 pycryptodomex==3.24.2 lxml==6.1.3 kagglehub==1.0.3 Pillow==13.0.0 datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 dill==0.4.1 multiprocess==0.70.19 \
    xxhash==4.1.0 python-dateutil==4.0.0 six==1.17.0 pytz==2026.6 tzdata==2026.6 aiohttp==3.14.5
fi
others=$(site)/bitsandbytes/libbitsandbytes_cuda130.so
if [[ ! -f $work/fake/libcudart.so.13 || ! -f $work/fake/libcublas.so.13 || $here/../oracle/fake_cuda.c -nt $work/fake/libcudart.so.13 ]]; then
  "$here/../oracle/build.sh" "$(site)/torch" "$work/include" "$work/fake" "$others"
  "$here/../oracle/stubs.py" "$(site)/torch/lib" "$work/fake" "$others"
fi
"$work/venv/bin/python" "$here/record.py" "$work" "$@"
