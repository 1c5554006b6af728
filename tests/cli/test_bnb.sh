#!/usr/bin/env bash
# Directories that bitsandbytes quantized: the same numbers and bytes as of the 16-bit model with --quantize, resume, and
# what is refused.
models=$(cd "$(dirname "${BASH_SOURCE[0]}")/../quant" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$1"

python3 -c 'import array; array.array("H", [(k * k + k // 7) % 31 for k in range(4000)]).tofile(open("ids.bin", "wb"))'
# MODEL OPTION...: the loss, with all its digits
loss() {
  run evaluate "$@" --data ids.bin --seq 16 --quiet --json
  expect_rc 0
  grep -oE '"loss": [0-9.]+' "$work/out"
}
adapt() {
  run train "$1" --data ids.bin --seq 16 --steps 4 --schedule constant --lr 1e-3 --lora r=4,alpha=8 --quiet --check --out "$2" "${@:3}"
  expect_rc 0
  expect_out 'equal to the byte'
}
same() { cmp -s "$1/final/adapter_model.safetensors" "$2/final/adapter_model.safetensors" || fail "$1 and $2 differ"; }

for model in llama-nf4+dq llama-fp4 llama-int8 gpt2-nf4 gpt2-int8; do
  plain=$models/${model%%-*} kind=${model#*-}
  for precision in fp32 bf16; do
    [ "$(loss "$models/$model" --precision "$precision")" = "$(loss "$plain" --quantize "$kind" --precision "$precision")" ] ||
      fail "$model and $kind differ in $precision"
  done
  adapt "$models/$model" "stored-$model" --precision bf16
  adapt "$plain" "made-$model" --precision bf16 --quantize "$kind"
  same "stored-$model" "made-$model"
done
[ "$(loss "$models/llama-fp4")" != "$(loss "$models/llama")" ] || fail 'fp4 changed nothing'

# A run that goes on, and nothing of the base in it.
run train "$models/llama-nf4+dq" --data ids.bin --seq 16 --steps 2 --schedule constant --lr 1e-3 --lora r=4,alpha=8 --quiet \
  --precision bf16 --out half
run train --resume half --steps 4 --quiet
expect_rc 0
same half stored-llama-nf4+dq

# It goes on beside the base that it began with, and no other.
cp -r "$models/llama-nf4+dq" base
chmod -R u+w base
run train base --data ids.bin --seq 16 --steps 2 --schedule constant --lora r=4 --quiet --out moved
cp "$models/llama-nf4+dq/model.safetensors" base/other
python3 -c 'data = bytearray(open("base/other", "rb").read()); data[-3] ^= 1; open("base/model.safetensors", "wb").write(data)'
rm base/other
run train --resume moved --steps 4 --quiet
[ "$rc" -ne 0 ] || fail 'a run went on beside another base'
expect_err 'base'

# Without its weights a description begins from the seed, and is quantized like any other.
run plan "$models/llama-fp4/config.json" --seq 16 --lora r=4 --json
expect_rc 0
run train "$models/llama-fp4/config.json" --data ids.bin --seq 16 --steps 2 --lora r=4 --quiet --out seeded --seed 3
expect_rc 0
run train "$models/llama/config.json" --data ids.bin --seq 16 --steps 2 --lora r=4 --quiet --out seeded-plain --seed 3 --quantize fp4
same seeded seeded-plain
run generate "$models/llama-int8" --prompt '1 2 3' --max-tokens 4
expect_rc 0

# Adapters of it name it, and what was trained is what is evaluated.
[ "$(loss half/final --precision bf16)" = "$(loss "$models/llama" --quantize nf4+dq --adapter half/final --precision bf16)" ] ||
  fail 'the adapter means another function'

# The need is exact.
run plan "$models/llama-nf4+dq" --seq 16 --lora r=4 --json
need=$(json_number need_bytes)
run train "$models/llama-nf4+dq" --data ids.bin --seq 16 --steps 1 --lora r=4 --budget "$need" --quiet --out exact
expect_rc 0
run train "$models/llama-nf4+dq" --data ids.bin --seq 16 --steps 1 --lora r=4 --budget "$((need - 1))" --quiet --out less
expect_rc 3

run train "$models/llama-fp4" --data ids.bin --seq 16 --steps 1 --out no
refuses 2
expect_err 'quantized weight files and training of all weights exclude each other'
run evaluate "$models/llama-fp4" --data ids.bin --seq 16 --quantize nf4
refuses 2
expect_err 'quantize nf4 and the weights of llama-fp4, which are fp4'
# What is written is what bitsandbytes writes: the same tensors, byte for byte (gpt2-nf4 is stored as bf16 there).
for model in llama-nf4+dq llama-fp4 llama-int8 gpt2-nf4 gpt2-int8; do
  run convert "$models/${model%%-*}" "ours-$model" --quantize "${model#*-}"
  expect_rc 0
  [ "$(loss "ours-$model")" = "$(loss "$models/$model")" ] || fail "our $model is another model"
  python3 - "ours-$model" "$models/$model" <<'P' || fail "our $model is not as bitsandbytes writes it"
import json, struct, sys
def read(path):
    data = open(path + "/model.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    return {k: data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]]
            for k, v in json.loads(data[8 : 8 + size]).items() if k != "__metadata__"}
ours, theirs = (read(path) for path in sys.argv[1:])
assert ours == theirs, [k for k in set(ours) | set(theirs) if ours.get(k) != theirs.get(k)]
config = [json.load(open(path + "/config.json"))["quantization_config"] for path in sys.argv[1:]]
config[1]["bnb_4bit_quant_storage"] = "uint8"
assert config[0] == config[1], config
P
done
# All keys of the source's config.json stay, also those that nobody here knows.
cp -r "$models/gpt2" keyed
sed -i '0,/{/s//{"somebody": {"own": [1, null, "x"]},/' keyed/config.json
run convert keyed ours-keyed --quantize nf4
expect_rc 0
python3 - keyed ours-keyed <<'P' || fail 'keys of config.json were lost'
import json, sys
theirs, ours = (json.load(open(path + "/config.json")) for path in sys.argv[1:])
assert ours.pop("quantization_config")["load_in_4bit"] and theirs["somebody"] == ours["somebody"]
assert set(theirs) <= set(ours) and all(ours[k] == v for k, v in theirs.items()), (theirs, ours)
P
# So do all files of a tokenizer, of whatever kind; --without-tokenizer leaves them.
tokenizer=(tokenizer.json tokenizer.model tekken.json x.tiktoken vocab.json merges.txt vocab.txt tokenizer_config.json
  special_tokens_map.json added_tokens.json chat_template.jinja)
for name in "${tokenizer[@]}" generation_config.json; do echo "{\"$name\": 0}" >keyed/$name; done
run convert keyed full --quantize nf4; expect_rc 0
run convert keyed without --quantize nf4 --without-tokenizer; expect_rc 0
for name in "${tokenizer[@]}"; do
  cmp -s keyed/$name full/$name || fail "$name was lost"
  [ ! -e without/$name ] || fail "$name was copied unasked"
done
cmp -s keyed/generation_config.json without/generation_config.json || fail 'generation_config.json was lost'

run train micro-gpt2-bytes --data ids.bin --seq 16 --steps 1 --out bytes --quiet
run convert bytes/final own --quantize int8 --json
expect_rc 0
expect_out '"type": "int8"'
[ "$(loss own)" = "$(loss bytes/final --quantize int8)" ] || fail 'fp32 files are quantized from other values'
cp own/model.safetensors before
run convert bytes/final own --quantize nf4
refuses 2
run convert bytes/final own --quantize nf4 --force
expect_rc 0
cmp -s own/model.safetensors before && fail '--force changed nothing'
run convert bytes/final bytes --quantize nf4 --force
refuses 2
run convert bytes/final other.gguf --quantize nf4
refuses 2
expect_err 'makes a directory of a directory'
run convert bytes/final other --quantize nf4 --type f16
refuses 2
expect_err 'exclude each other'
run convert own other --quantize nf4
expect_rc 5
[ ! -e other ] || fail 'a refused conversion left something'
run convert "$models/llama-fp4" out.gguf
expect_rc 5
expect_err 'llama-fp4 is quantized .fp4, by bitsandbytes.'

# MODEL FILE SCRIPT: a copy of a model, its file changed
damage() {
  rm -rf damaged
  cp -r "$models/$1" damaged
  chmod -R u+w damaged
  python3 - "$2" "$3" <<'P'
import json, struct, sys
path, script = "damaged/" + sys.argv[1], sys.argv[2]
data = bytearray(open(path, "rb").read())
if path.endswith(".json"):
    config = json.loads(data)
    exec(script)
    data = json.dumps(config).encode()
else:
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + size])
    at = lambda name: 8 + size + head[name]["data_offsets"][0]
    exec(script)
    text = json.dumps(head).encode()
    data = struct.pack("<Q", len(text)) + text + bytes(data[8 + size :])
open(path, "wb").write(data)
P
}
refused() {
  run evaluate damaged --data ids.bin --seq 16 "${@:2}"
  expect_rc 5
  expect_err "$1"
}
q=model.layers.0.self_attn.q_proj
damage llama-fp4 model.safetensors "data[at('$q.weight.absmax') + 4 : at('$q.weight.absmax') + 8] = struct.pack('<f', float('nan'))"
refused "tensor $q.weight.absmax has nan at 1"
damage llama-nf4+dq model.safetensors "data[at('$q.weight.nested_absmax') :][:4]; data[at('$q.weight.nested_absmax') : at('$q.weight.nested_absmax') + 4] = struct.pack('<f', float('nan'))"
refused "tensor $q.weight.nested_absmax has nan at 0"
damage llama-int8 model.safetensors "head['other'] = head.pop('$q.SCB')"
refused "tensor $q.SCB is missing"
damage llama-fp4 config.json "config['quantization_config']['bnb_4bit_quant_type'] = 'nf4'"
refused 'is fp4 and config.json says nf4'
damage llama config.json "config['quantization_config'] = {'load_in_4bit': True}"
refused 'is not quantized and config.json says fp4'
damage llama-fp4 config.json "del config['quantization_config']"
refused 'has dtype U8'
damage llama-fp4 config.json "config['quantization_config']['llm_int8_skip_modules'] = ['lm_head', 'q_proj']"
refused 'leaves out model.layers.0.self_attn.q_proj and not model.layers.0.self_attn.k_proj'
damage llama-fp4 config.json "config['quantization_config']['llm_int8_skip_modules'] = ['lm_head', 'self_attn.o_proj']"
refused 'model.layers.0.self_attn.o_proj.weight has dtype U8'

# Never rounded without a word: values that config.json calls bfloat16 and that are not.
damage llama model.safetensors "head['$q.weight']['dtype'] = 'F16'"
refused "tensor $q.weight is F16 and config.json says bfloat16" --quantize nf4
damage llama config.json "config['dtype'] = 'float16'"
[ "$(loss damaged --quantize nf4)" = "$(loss "$models/llama" --quantize nf4)" ] || fail 'fp32 values are not those of bf16'

# Modules that are left out stay as they are.
rm -rf mixed
cp -r "$models/llama-fp4" mixed
python3 - "$models" <<'P'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    return {k: (v["dtype"], v["shape"], data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]])
            for k, v in json.loads(data[8 : 8 + size]).items() if k != "__metadata__"}
mixed, plain = read("mixed/model.safetensors"), read(sys.argv[1] + "/llama/model.safetensors")
name = "model.layers.0.mlp.down_proj.weight"
mixed = {k: v for k, v in mixed.items() if not k.startswith(name)} | {name: plain[name]}
head, body = {}, b""
for k, (dtype, shape, data) in mixed.items():
    head[k] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
    body += data
text = json.dumps(head).encode()
open("mixed/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
config = json.load(open("mixed/config.json"))
config["quantization_config"]["llm_int8_skip_modules"] = ["lm_head", "down_proj"]
json.dump(config, open("mixed/config.json", "w"))
P
[ "$(loss mixed)" != "$(loss "$models/llama-fp4")" ] || fail 'a module that was left out changed nothing'
adapt mixed mixed-run
finish
