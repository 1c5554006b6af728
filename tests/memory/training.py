"""One training job as people run it, with PyTorch and Hugging Face's libraries, three steps of it: what records it is tracing.py.

A job is a dictionary (jobs.py has the table and says what each field means). Models are built from the configurations below with memory
that nobody wrote to: kernels do nothing here, and values are not looked at."""

import contextlib
import fnmatch
import types

import torch

import ranks

STEPS = 3

# The shapes as their authors publish them. Families are classes of transformers.
MODELS = {
    "gpt2-124m": ("gpt2", dict(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)),
    "gpt2-774m": ("gpt2", dict(vocab_size=50257, n_positions=1024, n_embd=1280, n_layer=36, n_head=20)),
    "llama3-1b": ("llama", dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                                num_key_value_heads=8, head_dim=64, max_position_embeddings=131072, rms_norm_eps=1e-5,
                                rope_theta=500000.0, tie_word_embeddings=True)),
    "llama3-8b": ("llama", dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                                num_key_value_heads=8, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=500000.0,
                                tie_word_embeddings=False)),
    "mistral-7b": ("mistral", dict(vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                                   num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=32768, rms_norm_eps=1e-5,
                                   sliding_window=4096, tie_word_embeddings=False)),
    "qwen2.5-0.5b": ("qwen2", dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
                                   num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32768, rms_norm_eps=1e-6,
                                   rope_theta=1000000.0, use_sliding_window=False, tie_word_embeddings=True)),
    "qwen3-0.6b": ("qwen3", dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                                 num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960,
                                 rms_norm_eps=1e-6, rope_theta=1000000.0, use_sliding_window=False, tie_word_embeddings=True)),
    "qwen3-4b": ("qwen3", dict(vocab_size=151936, hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
                               num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rms_norm_eps=1e-6,
                               rope_theta=1000000.0, use_sliding_window=False, tie_word_embeddings=True)),
    "phi3-mini": ("phi3", dict(vocab_size=32064, hidden_size=3072, intermediate_size=8192, num_hidden_layers=32, num_attention_heads=32,
                               num_key_value_heads=32, max_position_embeddings=4096, original_max_position_embeddings=4096,
                               rms_norm_eps=1e-5, sliding_window=2047, tie_word_embeddings=False)),
    "gemma2-2b": ("gemma2", dict(vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8,
                                 num_key_value_heads=4, head_dim=256, max_position_embeddings=8192, sliding_window=4096,
                                 query_pre_attn_scalar=256, final_logit_softcapping=30.0, attn_logit_softcapping=50.0,
                                 tie_word_embeddings=True)),
    "tinyllama-1.1b": ("llama", dict(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                                     num_key_value_heads=4, max_position_embeddings=2048, rms_norm_eps=1e-5, tie_word_embeddings=False)),
    "smollm2-1.7b": ("llama", dict(vocab_size=49152, hidden_size=2048, intermediate_size=8192, num_hidden_layers=24, num_attention_heads=32,
                                   num_key_value_heads=32, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=130000.0, tie_word_embeddings=True)),
    "gemma3-1b": ("gemma3", dict(vocab_size=262144, hidden_size=1152, intermediate_size=6912, num_hidden_layers=26, num_attention_heads=4,
                                 num_key_value_heads=1, head_dim=256, max_position_embeddings=32768, sliding_window=512,
                                 query_pre_attn_scalar=256, tie_word_embeddings=True)),
}

CLASSES = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
    "phi3": ("Phi3Config", "Phi3ForCausalLM"),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM"),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"),
}

PRECISIONS = {  # name: (of the weights, of autocast)
    "fp32": (torch.float32, None),
    "amp-bf16": (torch.float32, torch.bfloat16),
    "amp-fp16": (torch.float32, torch.float16),
    "bf16": (torch.bfloat16, None),
    "fp16": (torch.float16, None),
}


def skip_initialization():
    """Weights keep the pages that nobody has touched: an 8B model on the host takes no memory."""
    for name in ("uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "kaiming_uniform_", "kaiming_normal_",
                 "xavier_uniform_", "xavier_normal_"):
        setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    import transformers.modeling_utils as modeling

    modeling.PreTrainedModel._init_weights = lambda self, module: None
    modeling.PreTrainedModel._initialize_weights = lambda self, module, *_, **__: None
    modeling.PreTrainedModel.initialize_weights = lambda self, *_, **__: None


def skip_triton():
    """Some of PyTorch's own ops are kernels in Triton, which wants a driver; like all others they do nothing here."""
    from triton.runtime import jit

    jit.JITFunction.run = lambda self, *_, **__: None


def build(job):
    import transformers

    family, shape = MODELS[job["model"]]
    config_name, model_name = CLASSES[family]
    shape = dict(shape)
    if job.get("layers"):
        shape["n_layer" if family == "gpt2" else "num_hidden_layers"] = job["layers"]
    if job.get("dropout") is not None:
        shape |= dict(resid_pdrop=job["dropout"], embd_pdrop=job["dropout"], attn_pdrop=job["dropout"])
    config = getattr(transformers, config_name)(**shape)
    kind = getattr(transformers, model_name)
    for cls in kind.__mro__:
        if "_init_weights" in cls.__dict__ and cls.__module__.startswith("transformers."):
            cls._init_weights = lambda self, module: None
    weights = ranks.TYPES[job["base"]] if job.get("base") else PRECISIONS[job["precision"]][0]
    model = kind._from_config(config, attn_implementation=job["attention"], torch_dtype=weights)
    model.config.use_cache = job.get("use_cache", False)
    for name, parameter in model.named_parameters():
        if any(fnmatch.fnmatch(name, pattern) for pattern in job.get("frozen", ())):
            parameter.requires_grad_(False)
    if job.get("checkpointing"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": job["checkpointing"] == "reentrant"})
    return model


def checkpoint(model, folder):
    """A checkpoint of the model as files whose pages nobody has written: 16-bit zeros that take no room."""
    import json
    import os

    names = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    kinds = {value: key for key, value in names.items()}
    os.makedirs(folder, exist_ok=True)
    model.config.save_pretrained(folder)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    tied = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in tied:
            continue
        tied.add(tensor.data_ptr())
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + offset)


def quantized(job):
    """QLoRA as transformers, bitsandbytes and peft describe it: a checkpoint in 16 bits read in nf4, prepared, adapters put on."""
    import shutil
    import tempfile

    import transformers
    from peft import prepare_model_for_kbit_training

    compute = {"amp-bf16": torch.bfloat16, "bf16": torch.bfloat16, "amp-fp16": torch.float16, "fp16": torch.float16}[job["precision"]]
    folder = tempfile.mkdtemp()
    try:
        checkpoint(build(dict(job, precision="bf16" if compute == torch.bfloat16 else "fp16", checkpointing=None)), folder)
        if job["quantized"] == "int8":
            how = transformers.BitsAndBytesConfig(load_in_8bit=True)
        else:
            how = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=compute,
                                                  bnb_4bit_use_double_quant=job["quantized"] == "nf4-double", bnb_4bit_quant_storage=ranks.TYPES.get(job.get("storage")))
        model = getattr(transformers, CLASSES[MODELS[job["model"]][0]][1]).from_pretrained(
            folder, quantization_config=how, attn_implementation=job["attention"], torch_dtype=compute, device_map={"": 0})
    finally:
        shutil.rmtree(folder)
    model.config.use_cache = False
    checkpointing = {"use_reentrant": job["checkpointing"] == "reentrant"}
    if job["loop"] == "trl" or job.get("storage"):
        if job["checkpointing"] and job["loop"] == "plain":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=checkpointing)
        return model  # as it is: TRL prepares nothing, and who shares the codes of 4 bits leaves what lies beside them in their type
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=bool(job["checkpointing"]), gradient_checkpointing_kwargs=checkpointing)


def optimizer_for(job, parameters):
    parameters = [p for p in parameters if p.requires_grad]
    name = job["optimizer"]
    how = {"default": {}, "loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[job["implementation"]]
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-5, **how)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-5, **how)
    if name == "sgd-momentum":
        return torch.optim.SGD(parameters, lr=1e-5, momentum=0.9, **how)
    if name == "adafactor-torch":
        return torch.optim.Adafactor(parameters, lr=1e-5)
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(parameters, lr=1e-5, scale_parameter=False, relative_step=False)
    import bitsandbytes

    return {"adamw8bit": bitsandbytes.optim.AdamW8bit, "paged-adamw8bit": bitsandbytes.optim.PagedAdamW8bit,
            "paged-adamw32bit": bitsandbytes.optim.PagedAdamW32bit}[name](parameters, lr=1e-5)


def with_adapters(job, model):
    """LoRA by peft as its documentation writes it."""
    from peft import LoraConfig, get_peft_model

    lora = job["lora"]
    if job.get("checkpointing"):
        model.enable_input_require_grads()
    return get_peft_model(model, LoraConfig(r=lora["rank"], lora_alpha=2 * lora["rank"], lora_dropout=lora.get("dropout", 0.0),
                                            target_modules=lora["targets"], use_dora=lora.get("use_dora", False),
                                            modules_to_save=lora.get("modules_to_save"), task_type="CAUSAL_LM"))


def rows(job, device):
    shape = job["batch"], job["seq"]
    inputs = {"input_ids": torch.zeros(shape, dtype=torch.long).to(device)}
    if job["mask"] != "none":
        inputs["attention_mask"] = torch.ones(shape, dtype=torch.long).to(device)
    inputs["labels"] = torch.zeros(shape, dtype=torch.long).to(device)
    return inputs


@contextlib.contextmanager
def attention_backend(job):
    name = job.get("backend")
    if not name:
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel({"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}[name]):
        yield


def with_liger(job, model):
    """Liger's kernels in an instance, as the Trainer puts them there."""
    if job.get("liger"):
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=model)
    return model


def made(job):
    """The model on the host, or in 4 bits on the card, with adapters where the job has them."""
    model = quantized(job) if job.get("quantized") else build(job)
    return with_adapters(job, model) if job.get("lora") else model


def plain_loop(job, phases):
    """The loop of the tutorials. "plain" keeps `outputs`, and so the logits, until the next forward is done; "plain-loss" only the loss."""
    phases.begin("load")
    model = quantized(job) if job.get("quantized") else build(job)
    if not ranks.stays_on_host(job) and not job.get("quantized"):
        model = model.to("cuda")
    model = with_liger(job, model)
    if job.get("lora"):
        model = with_adapters(job, model)
        if not ranks.stays_on_host(job):
            model.to("cuda")
    model = ranks.wrap(job, model)
    model.train()
    phases.name_parameters(model)
    optimizer = optimizer_for(job, model.parameters())
    autocast = PRECISIONS[job["precision"]][1]
    scaler = torch.amp.GradScaler("cuda") if autocast == torch.float16 else None
    accumulation = job["accumulation"]
    keeps = job["loop"] == "plain"
    outputs = None
    for step in range(1, STEPS + 1):
        phases.step = step
        for micro_step in range(accumulation):
            phases.begin("forward")
            inputs = rows(job, "cuda")
            with ranks.accumulating(job, model, micro_step == accumulation - 1):
                with torch.autocast("cuda", dtype=autocast) if autocast else contextlib.nullcontext():
                    if keeps:
                        outputs = model(**inputs)
                        loss = outputs.loss
                    else:
                        loss = model(**inputs).loss
                if accumulation > 1:
                    loss = loss / accumulation
                phases.begin("backward")
                if scaler:
                    scaler.scale(loss).backward()
                else:
                    loss.backward()
        phases.name_gradients(model)
        phases.begin("clip")
        if job["clip"]:
            if scaler:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), job["clip"])
        phases.begin("optimizer")
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        phases.begin("zero_grad")
        optimizer.zero_grad()
        phases.end()
    del outputs
    return model, optimizer


class Rows(torch.utils.data.Dataset):
    def __init__(self, job, count):
        self.job, self.count = job, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        row = {"input_ids": [0] * self.job["seq"], "labels": [0] * self.job["seq"]}
        if self.job["mask"] != "none":
            row["attention_mask"] = [1] * self.job["seq"]
        return row


def trl_trainer(job, model, arguments):
    """TRL's SFTTrainer on rows of token ids and labels, which it does not look into. Masks of its head choose all rows, without asking the device how many."""
    import os
    import sys

    sys.path.append(os.environ["TRL"])
    import datasets
    import tokenizers
    import transformers
    import trl

    plain = torch.Tensor.__getitem__

    def chosen(tensor, index):
        if not (torch.is_tensor(index) and index.is_cuda and index.dtype == torch.bool):
            return plain(tensor, index)
        places = torch.nonzero_static(index, size=index.numel())
        return plain(tensor, tuple(places.unbind(1)))

    torch.Tensor.__getitem__ = chosen
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "end": 1}, unk_token="a"))
    column = [[0] * job["seq"]] * job["batch"] * job["accumulation"] * (1 + STEPS)
    rows = datasets.Dataset(datasets.table.InMemoryTable.from_pydict({"input_ids": column, "labels": column}), fingerprint="rows")
    if not job.get("checkpointing"):
        arguments["gradient_checkpointing"] = False
    arguments |= dict(max_length=job["seq"], dataset_kwargs={"skip_prepare_dataset": True})
    return trl.SFTTrainer(model=model, args=trl.SFTConfig(**arguments), train_dataset=rows,
                          processing_class=transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="end", pad_token="end"))


def in_phase(phases, name, function):
    def phased(*args, **kwargs):
        phases.begin(name)
        result = function(*args, **kwargs)
        phases.end()
        return result

    return phased


def in_phases(job, phases, trainer, model):
    """A Trainer whose methods say where a phase begins."""
    import transformers

    phases.name_parameters(model)
    shape = torch.Size((job["batch"], job["seq"]))
    inner = trainer.training_step

    def training_step(self, wrapped, inputs, *args, **kwargs):
        assert inputs["input_ids"].shape == shape, f"rows of {inputs['input_ids'].shape}, not {shape}"
        if phases.micro_step % job["accumulation"] == 0:
            phases.step += 1
        phases.micro_step += 1
        phases.begin("forward")
        return inner(wrapped, inputs, *args, **kwargs)

    trainer.training_step = types.MethodType(training_step, trainer)
    backward = trainer.accelerator.backward

    def phased_backward(*args, **kwargs):
        phases.begin("backward")
        result = backward(*args, **kwargs)
        phases.name_gradients(model)
        phases.begin("between")
        return result

    trainer.accelerator.backward = phased_backward
    clip = trainer.accelerator.clip_grad_norm_

    def phased_clip(*args, **kwargs):
        phases.begin("clip")
        return clip(*args, **kwargs)

    trainer.accelerator.clip_grad_norm_ = phased_clip

    class Callback(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, *args, **kwargs):
            phases.begin("optimizer")

        def on_optimizer_step(self, *args, **kwargs):
            phases.begin("zero_grad")

        def on_step_end(self, *args, **kwargs):
            phases.end()

    trainer.add_callback(Callback())
    return trainer


def trainer_loop(job, phases):
    """transformers.Trainer, whose methods stay as they are: each is wrapped to say where a phase begins."""
    import transformers

    phases.begin("load")
    model = quantized(job) if job.get("quantized") else build(dict(job, checkpointing=None))
    if not ranks.stays_on_host(job) and not job.get("quantized"):
        model = model.to("cuda")
    if job.get("lora"):
        model = with_adapters(job, model)
    optimizer = {("adamw", "default"): None, ("adamw", "loop"): None, ("adamw", "foreach"): "adamw_torch", ("adamw", "fused"): "adamw_torch_fused",
                 ("sgd", "default"): "sgd", ("adafactor", "default"): "adafactor", ("adamw8bit", "default"): "adamw_bnb_8bit",
                 ("paged-adamw8bit", "default"): "paged_adamw_8bit"}[job["optimizer"], job["implementation"]]
    arguments = dict(output_dir="unused", per_device_train_batch_size=job["batch"], gradient_accumulation_steps=job["accumulation"],
                     max_steps=STEPS, save_strategy="no", report_to=[], logging_steps=1, disable_tqdm=True, max_grad_norm=job["clip"],
                     bf16=job["precision"] == "amp-bf16", fp16=job["precision"] == "amp-fp16", remove_unused_columns=False)
    if optimizer:
        arguments["optim"] = optimizer
    if job.get("checkpointing"):
        arguments |= dict(gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": job["checkpointing"] == "reentrant"})
    arguments |= ranks.trainer_arguments(job, model)
    if job.get("liger"):
        arguments["use_liger_kernel"] = True
    evaluation = job.get("evaluation")
    more = {}
    if evaluation:
        arguments |= dict(per_device_eval_batch_size=evaluation["batch"], eval_accumulation_steps=evaluation["to_host"])
        if evaluation.get("middle"):
            arguments |= dict(eval_strategy="steps", eval_steps=1)
        more = dict(eval_dataset=Rows(job, evaluation["batch"] * evaluation["batches"] * job.get("ranks", 1)), compute_metrics=(lambda _: {}) if evaluation["metrics"] else None)
    if job.get("saving"):
        arguments |= dict(output_dir=job["folder"], save_strategy="steps", save_steps=1, save_total_limit=1)
    if job.get("saving") == "resume":
        arguments |= dict(save_strategy="no", max_steps=1 + STEPS) if job["resumed"] else dict(max_steps=1)
    train_rows = Rows(job, job["batch"] * job["accumulation"] * (1 + STEPS) * job.get("ranks", 1))
    if job["loop"] == "trl":
        trainer = trl_trainer(job, model, arguments)
    else:
        trainer = transformers.Trainer(model=model, args=transformers.TrainingArguments(**arguments), train_dataset=train_rows, **more)
    trainer = in_phases(job, phases, trainer, model)
    if evaluation and evaluation.get("middle"):
        plain = trainer.evaluate

        def phased_evaluate(*args, **kwargs):
            phases.begin("evaluate")
            phases.whole = True
            result = plain(*args, **kwargs)
            phases.whole = False
            phases.end()
            return result

        trainer.evaluate = phased_evaluate
    for name, phase in (("_save_checkpoint", "save"), ("_load_from_checkpoint", "resume"), ("_load_optimizer_and_scheduler", "resume")):
        if job.get("saving"):
            setattr(trainer, name, in_phase(phases, phase, getattr(trainer, name)))
    trainer.train(resume_from_checkpoint=True if job.get("resumed") else None)
    if evaluation and not evaluation.get("middle"):
        phases.begin("evaluate")
        phases.whole = True
        if evaluation.get("predict"):
            trainer.predict(trainer.eval_dataset)
        else:
            trainer.evaluate()
        phases.end()
    return model, trainer.optimizer


def unnoted(job):
    """How many reads from the device are known that nobody notes."""
    if job["loop"] != "torchtune":
        return 0
    import tuning

    return tuning.unnoted(job)


def run(job, phases):
    if job["loop"] == "torchtune":
        import tuning

        return tuning.run(job, phases)
    with attention_backend(job):
        if ranks.kind(job) == "zero" and job["loop"] != "trainer":
            return ranks.deepspeed_loop(job, phases, made, rows, optimizer_for, STEPS)
        if job["loop"] in ("axolotl", "llama-factory"):
            import frameworks

            return (frameworks.axolotl if job["loop"] == "axolotl" else frameworks.llama_factory)(job, phases)
        return (trainer_loop if job["loop"] in ("trainer", "trl") else plain_loop)(job, phases)
