"""axolotl and LLaMA-Factory by their own entry points: a job of stacks.json becomes a configuration of theirs, a folder with a model whose weights nobody
has written, a tokenizer of a few words and a file of rows. What loads the model and who trains it is theirs; each method is wrapped to say where a phase
begins (training.in_phases)."""

import contextlib
import importlib.util
import json
import os
import sys
import tempfile
import types

import training

# What is loaded once for all jobs, in a process that has no device yet.
LIBRARIES = {"axolotl": ("datasets", "numba"), "llama-factory": ("transformers.trainer", "peft", "datasets", "trl")}
WORDS = ["<unk>", "<s>", "</s>", "<pad>", "a", "b"]
FOUR_BITS = ("nf4", "nf4-double")


def model_folder(job, folder, weights):
    """A checkpoint as people have it, in `weights`, with a tokenizer."""
    import tokenizers
    import transformers

    path = os.path.join(folder, "model")
    training.checkpoint(training.build(dict(job, precision=weights, checkpointing=None)), path)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>").save_pretrained(path)
    return path


def rows_wanted(job):
    return job["batch"] * job["accumulation"] * (1 + training.STEPS)


def optim(job, usual):
    return {"adamw": usual, "adamw8bit": "adamw_bnb_8bit", "paged-adamw8bit": "paged_adamw_8bit", "adafactor": "adafactor"}[job["optimizer"]]


@contextlib.contextmanager
def stand_ins(*names):
    """Packages that are only named while others are imported, and of which no job uses anything."""
    plain = importlib.util.find_spec
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    importlib.util.find_spec = lambda name, *more: None if name in names else plain(name, *more)
    yield
    importlib.util.find_spec = plain
    for name in names:
        del sys.modules[name]


# ---- axolotl ----


def axolotl_configuration(job, path):
    """The file that a person would write."""
    precision = {"amp-bf16": {"bf16": True}, "amp-fp16": {"fp16": True, "bf16": False}, "bf16": {"bf16": "full"}, "fp32": {"bf16": False, "fp16": False}}[job["precision"]]
    file = {"base_model": path, "datasets": [{"path": os.path.join(path, "rows.json"), "ds_type": "json", "type": "alpaca"}], "val_set_size": 0, "sequence_len": job["seq"],
            "micro_batch_size": job["batch"], "gradient_accumulation_steps": job["accumulation"], "max_steps": training.STEPS, "num_epochs": 1,
            "learning_rate": 1e-5, "lr_scheduler": "constant", "attn_implementation": job["attention"], "save_strategy": "no", "logging_steps": 1,
            "output_dir": os.path.join(path, "out"), "max_grad_norm": job["clip"]} | precision
    if optimizer := optim(job, None):
        file["optimizer"] = optimizer
    if job["checkpointing"]:
        file["gradient_checkpointing"] = True
    if job["checkpointing"] == "non-reentrant":
        file["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    if job.get("sample_packing"):
        file["sample_packing"] = True
    if job.get("liger"):
        file |= {"plugins": ["axolotl.integrations.liger.LigerPlugin"], "liger_rope": True, "liger_rms_norm": True, "liger_glu_activation": True,
                 "liger_fused_linear_cross_entropy": True}
    if lora := job["lora"]:
        file |= {"adapter": "qlora" if job.get("quantized") in FOUR_BITS else "lora", "lora_r": lora["rank"], "lora_alpha": 2 * lora["rank"], "lora_dropout": lora["dropout"],
                 "lora_target_modules": lora["targets"]}
    if job.get("quantized") in FOUR_BITS:
        file["load_in_4bit"] = True
    if job.get("quantized") == "nf4":
        file["bnb_config_kwargs"] = {"bnb_4bit_use_double_quant": False}
    if job.get("quantized") == "int8":
        file["load_in_8bit"] = True
    if job.get("kernels") is False:
        file |= dict.fromkeys(("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"), False)
    return file


def axolotl_rows(job):
    """As its tokenization leaves them; of packed rows four documents each."""
    import datasets

    length, count = (job["seq"] // 4, 4 * rows_wanted(job)) if job.get("sample_packing") else (job["seq"], rows_wanted(job))
    columns = {"input_ids": [[4] * length] * count, "attention_mask": [[1] * length] * count, "labels": [[4] * length] * count}
    if job.get("sample_packing"):
        columns["position_ids"] = [list(range(length))] * count
    return datasets.Dataset.from_dict(columns)


def pin_packing(documents, longest):
    """Where documents begin is read off position ids, which are 0 here: so many, each so long, are found instead."""
    import torch
    import transformers.modeling_flash_attention_utils as attention
    from torch.nn.attention import varlen

    def lengths(position_ids):
        flat = position_ids.reshape(-1)
        indices = torch.nonzero_static(flat == flat.min(), size=documents).view(-1)
        ends = torch.cat((indices.to(torch.int32), torch.tensor(flat.size(), dtype=torch.int32, device=flat.device)))
        most = ends.diff().max()
        del most
        return (ends, ends), (longest, longest)

    def is_packed(position_ids):
        (position_ids == 0).sum()
        return True

    attention.prepare_fa_kwargs_from_position_ids = lengths
    varlen._should_use_cudnn = lambda _: False  # whose version is 0 here; it takes no causal mask anyway
    from axolotl.monkeypatch.attention import sdpa_varlen

    sdpa_varlen._is_packed = is_packed


def axolotl(job, phases):
    """axolotl train: load_cfg, then what axolotl.train.train begins with and ends in."""
    import torch

    torch.cuda.reset_peak_memory_stats = lambda *_: None  # of axolotl.utils.bench, behind the load
    with stand_ins("wandb", "evaluate"):
        import axolotl.core.builders  # noqa: F401
        from axolotl.cli.config import load_cfg
        from axolotl.common.datasets import TrainDatasetMeta
        from axolotl.train import setup_model_and_trainer

    with tempfile.TemporaryDirectory(prefix="job-") as folder:  # axolotl takes names with mpt in them for models
        path = model_folder(job, folder, "fp32" if job["precision"] == "fp32" else "bf16")
        with open(os.path.join(path, "rows.json"), "w", encoding="utf-8") as file:
            json.dump([{"instruction": "a", "input": "", "output": "b"}] * 4, file)
        with open(os.path.join(path, "job.yaml"), "w", encoding="utf-8") as file:
            json.dump(axolotl_configuration(job, path), file)
        cfg = load_cfg(os.path.join(path, "job.yaml"))
        if job.get("sample_packing"):
            pin_packing(4 * job["batch"], job["seq"] // 4)
        phases.begin("load")
        trainer, model, *_ = setup_model_and_trainer(cfg, TrainDatasetMeta(axolotl_rows(job), None, training.STEPS))
        trainer = training.in_phases(job, phases, trainer, model)
        trainer.train()
    return model, trainer.optimizer


# ---- LLaMA-Factory ----


class Trained(Exception):
    """What follows the training, files of it, is not looked at."""


def llama_factory_arguments(job, path):
    arguments = {"model_name_or_path": path, "stage": "sft", "do_train": True, "template": "default", "dataset": "rows", "dataset_dir": path, "cutoff_len": job["seq"],
                 "output_dir": os.path.join(path, "out"), "per_device_train_batch_size": job["batch"], "gradient_accumulation_steps": job["accumulation"],
                 "learning_rate": 1e-5, "max_steps": training.STEPS, "logging_steps": 1, "save_strategy": "no", "report_to": "none", "max_grad_norm": job["clip"],
                 "bf16": job["precision"] == "amp-bf16", "fp16": job["precision"] == "amp-fp16", "pure_bf16": job["precision"] == "bf16",
                 "flash_attn": {"sdpa": "auto", "eager": "disabled"}[job["attention"]], "disable_gradient_checkpointing": not job["checkpointing"],
                 "use_reentrant_gc": job["checkpointing"] != "non-reentrant", "upcast_layernorm": job.get("upcast_layernorm", False),
                 "enable_liger_kernel": job.get("liger", False), "finetuning_type": "lora" if job["lora"] else "freeze" if "frozen_but" in job else "full"}
    if optimizer := optim(job, None):
        arguments["optim"] = optimizer
    if "frozen_but" in job:
        arguments["freeze_trainable_layers"] = job["frozen_but"]
    if lora := job["lora"]:
        arguments |= {"lora_rank": lora["rank"], "lora_alpha": 2 * lora["rank"], "lora_dropout": lora["dropout"], "lora_target": ",".join(lora["targets"]),
                      "use_dora": lora.get("use_dora", False)}
    if job.get("quantized"):
        arguments |= {"quantization_bit": 4 if job["quantized"] in FOUR_BITS else 8, "double_quantization": job["quantized"] != "nf4"}
    return arguments


def llama_factory_rows(job, path):
    """Longer than cutoff_len, so that each is cut to it."""
    long = " ".join(["a"] * 2 * job["seq"])
    with open(os.path.join(path, "rows.json"), "w", encoding="utf-8") as file:
        json.dump([{"instruction": long, "input": "", "output": long}] * rows_wanted(job), file)
    with open(os.path.join(path, "dataset_info.json"), "w", encoding="utf-8") as file:
        json.dump({"rows": {"file_name": "rows.json"}}, file)


def llama_factory(job, phases):
    """llamafactory-cli train: get_train_args and run_sft, up to the end of trainer.train()."""
    with stand_ins("torchaudio"):
        from llamafactory.hparams import get_train_args
        from llamafactory.train.sft import workflow

    made = {}
    plain_load, plain_trainer = workflow.load_model, workflow.CustomSeq2SeqTrainer

    def load_model(*args, **kwargs):
        phases.begin("load")
        made["model"] = plain_load(*args, **kwargs)
        return made["model"]

    def trainer_of(*args, **kwargs):
        made["trainer"] = training.in_phases(job, phases, plain_trainer(*args, **kwargs), made["model"])

        def save_model(*_, **__):
            raise Trained

        made["trainer"].save_model = save_model
        return made["trainer"]

    workflow.load_model, workflow.CustomSeq2SeqTrainer = load_model, trainer_of
    with tempfile.TemporaryDirectory(prefix="job-") as folder:  # axolotl takes names with mpt in them for models
        path = model_folder(job, folder, "fp32" if job["precision"] == "fp32" else "fp16" if job["precision"] == "amp-fp16" else "bf16")
        llama_factory_rows(job, path)
        model_args, data_args, training_args, finetuning_args, generating_args = get_train_args(llama_factory_arguments(job, path))
        try:
            workflow.run_sft(model_args, data_args, training_args, finetuning_args, generating_args)
        except Trained:
            pass
    return made["model"], made["trainer"].optimizer
