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
# What both stacks want beside the versions of Hugging Face's libraries that each of them pins. wandb, evaluate's metrics and torchaudio are not among it
# (frameworks.py has stand-ins).
beside=(aiohappyeyeballs==2.7.1 aiohttp==3.14.5 aiosignal==1.4.0 anyio==4.16.0 attrs==26.1.0 certifi==2026.10.19.post1 einops==0.8.2 fire==0.7.1 frozenlist==1.8.0
  h11==0.16.0 httpcore==1.0.9 httpx==0.28.1 huggingface_hub==1.17.0 idna==3.20 liger-kernel==0.8.1 multidict==7.2.1 pandas==3.1.1 propcache==0.5.4 pyarrow==26.0.1
  python-dateutil==4.0.0 pytz==2026.6 scipy==1.17.1 sentencepiece==0.2.3 six==1.17.0 sniffio==1.3.1 termcolor==3.3.0 tzdata==2026.6 xxhash==4.1.0 yarl==1.25.1)
if [[ ! -d $work/axolotl ]]; then
  "$pip" install -q --no-deps --target "$work/axolotl" axolotl==0.19.0 transformers==5.16.1 tokenizers==0.23.1 accelerate==1.13.0 peft==0.20.0 trl==1.9.0 \
    datasets==4.8.4 dill==0.4.0 multiprocess==0.70.18 addict==2.4.0 art==6.5 axolotl-contribs-lgpl==0.0.7 axolotl-contribs-mit==0.0.6 backoff==2.2.1 colorama==0.4.6 \
    distro==1.9.0 evaluate==0.4.1 fastcore==2.2.41 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 llvmlite==0.50.0 mistral-common==1.11.5 numba==0.68.1 \
    nvidia-ml-py==13.615.71 pillow==13.0.0 posthog==6.7.11 pycountry==26.2.16 pydantic-extra-types==2.11.1 python-dotenv==1.0.1 referencing==0.37.0 \
    rpds-py==2026.9.1 schedulefree==1.4.1 tiktoken==0.14.0 "${beside[@]}"
fi
if [[ ! -d $work/llama-factory ]]; then
  "$pip" install -q --no-deps --target "$work/llama-factory" llamafactory==0.9.5 transformers==5.6.0 tokenizers==0.22.2 accelerate==1.11.0 peft==0.18.1 trl==0.24.0 \
    datasets==4.0.0 dill==0.3.8 multiprocess==0.70.16 antlr4-python3-runtime==4.9.3 docstring-parser==0.18.0 fsspec==2025.3.0 modelscope==1.40.2 omegaconf==2.4.0 \
    shtab==1.13.0 tyro==0.8.14 "${beside[@]}"
fi
others=$(site)/bitsandbytes/libbitsandbytes_cuda130.so
if [[ ! -f $work/fake/libcudart.so.13 || ! -f $work/fake/libcublas.so.13 || $here/../oracle/fake_cuda.c -nt $work/fake/libcudart.so.13 ]]; then
  "$here/../oracle/build.sh" "$(site)/torch" "$work/include" "$work/fake" "$others"
  "$here/../oracle/stubs.py" "$(site)/torch/lib" "$work/fake" "$others"
fi
"$work/venv/bin/python" "$here/record.py" "$work" "$@"
