"""Names that no dialect looks for: what a program's own words choose is asked for, and what they may change is said.

What they choose is then not at a framework's default, and is asked for.

Names of data, logging, saving, learning rates and the like do nothing to either, and are left out by their words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Settings
from shardplan.launch.dialects.values import degree

_DEGREE: Final = (
    r"(?!.*(?:data|vllm|rollout|infer|gen|ref|reward|critic|eval|per_device|virtual))"
    r".*(?:parallel\w*|mp_size|mp|[tpce]p_(?:size|degree))"
)
_AXES: Final[Mapping[str, str]] = {
    "pipeline": "pp", "pipe": "pp", "pp": "pp", "context": "cp", "sequence": "cp", "seq": "cp", "cp": "cp",
    "expert": "ep",
}  # fmt: skip
"""Words of axes; a degree without one is of tensors."""


def own_degrees(facts: Facts, settings: Settings, seen: Collection[str]) -> None:
    """A program's own word for a degree, which is not among ``seen``: that axis is not at one."""
    for name, each in settings.items():
        plain = name.replace("-", "_")
        if name not in seen and re.fullmatch(_DEGREE, plain) and (degree(each.value) or 1) > 1:
            axis = next((_AXES[word] for word in re.split(r"[._]", plain) if word in _AXES), "tp")
            facts.miss(axis, (f"{each.place} {each.value}, as the program reads it",))


ADAPTERS: Final = frozenset({"lora", "qlora", "dora", "use_lora"})
"""Values that choose adapters, whatever the name."""
_CHOICES: Final[Mapping[str, str]] = {
    "train": r"(?!(?:.*_)?[a-z]{1,2}_lora|.*mlp_adapter)"
    r"(?:.*_)?(?:q?lora|dora|peft|adapters?|p_?tuning|pre_seq_len|target_modules)(?:_.*)?",
    "optimizer": r"(?:.*_)?(?:galore|apollo|badam|adam_mini|adafactor|muon|sophia|lion|(?:ada)?lomo|shampoo)(?:_.*)?",
    "recompute": r".*recomput.*|(?:.*_)?(?:activation|gradient|grad)_?(?:checkpoint|ckpt).*|(?:.*_)?remat(?:_.*)?",
    "offload": r"(?!.*(?:ref|reward|critic|teacher|vllm|rollout)).*offload(?:ing)?"
    r"(?:_(?:optimizer|adam|states?|activations?|params?|weights|model|grads?))*",
}
"""What a name chooses in a plan: patterns of names with underscores. ``q_lora_rank`` is of latent attention,
``mm_mlp_adapter`` a projector."""
_GATED: Final = r"(?:.*_)?(?:swi|ge|re)?glu(?:_.*)?|.*gated_(?:mlp|linear).*"
_LAYERS: Final[Mapping[str, tuple[str, object]]] = {
    "gated": (_GATED, True),
    "bias": (r"(?!.*(?:router|expert|mask|fusion)).*(?:disable|no|without)_(?:.*_)?bias(?:_.*)?", False),
    "tie_word_embeddings": (r"(?:.*_)?unti(?:e|ed)(?:_.*)?", False),
    "normalization": (r"(?:.*_)?rms_?norm(?:_.*)?", "RMSNorm"),
}
"""What a name chooses in the layers of a model that a file builds, and what it seems to say."""


def own_choices(facts: Facts, values: Mapping[str, object], sign: str) -> None:
    """Asks for what ``values``, which nothing reads and which are on, choose by their names: no default holds there."""
    for name, value in values.items():
        plain = name.replace("-", "_").replace(".", "_").lower()
        for key in (*_of_plan(facts, plain, value), *_of_layers(facts, plain)):
            facts.facts.pop(key, None)
            if key not in facts.missing:
                facts.miss(key, (f"{sign}{name}, as the program reads it",))


def _of_plan(facts: Facts, name: str, value: object) -> Iterator[str]:
    """Choices of a plan that no table has read: nothing is known of them, or a default alone.

    A framework that has a default for ``train`` has its own word for adapters.
    """
    for key, pattern in _CHOICES.items():
        known = facts.facts.get(key)
        is_open = known is None or (known.origin == "assumed" and key != "train")
        if is_open and (re.fullmatch(pattern, name) or (key == "train" and str(value).lower() in ADAPTERS)):
            yield key


def _of_layers(facts: Facts, name: str) -> Iterator[str]:
    """Choices of layers whose default says otherwise; the width of an MLP goes with whether it is gated."""
    for key, (pattern, said) in _LAYERS.items():
        known = facts.facts.get(key)
        if known is not None and known.origin == "assumed" and known.value != said and re.fullmatch(pattern, name):
            yield key
            width = facts.facts.get("intermediate_size")
            if key == "gated" and width is not None and width.origin == "assumed":
                yield "intermediate_size"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FIRST: Final = _words(
    """
    abort adam adlr allow apply auto bench beta beta1 beta2 chat checkpoint checkpointing ckpt clip config
    conversation data dataloader dataprocess dataset datasets ddp debug decay decayed dist distributed do end
    epochs eval evals evaluation exit export fim force fsdp grad greater group handler hf hub hysteresis ignore
    image img include init initial is job jz_job kill label lazy learning length load local log logging loss lr
    manual master max_grad max_samples max_steps merge metric min min_lr mmap model_author model_name
    model_revision momentum name neftune node norm_epsilon num_epochs num_samples num_train output override
    overwrite patch plot port predict preprocessing pretrained print project prompt push random rank rdzv
    remove report resume rotary_base rotary_percent run sample sampling save saves seed shuffle skip spec
    special split splits start stop streaming strict structured swanlab system task template tensorboard test
    tiktoken timing tokenizer torch_extension train trigger trust use_checkpoint val valid validation variant
    verbose version vocab wandb warmup weight_decay with_tracking
    """
)
"""First words of names without effect."""
LAST: Final = _words(
    """
    alpha beta beta1 beta2 coef coeff config dir dropout entity eps epsilon factor_lr file files folder fraction
    fusion gamma interval iters key language name path paths patience port prefix proc project provider queue
    rate ratio rope samples scale seed split std steps strategy strictness style text theta timeout token tokens
    type url users value version warmup weight workers
    """
)
"""Last words of names without effect, unless the name says what is built."""
PLAIN: Final = _words(
    """
    accumulate_allreduce_grads_in_fp32 activation_func add_bias_linear add_bos ai_framework async_save
    attention_backend attention_softmax_in_fp32 batch_p2p_comm blend calculate_per_token_loss
    conversation_template cross_entropy_fusion_impl cross_entropy_loss_fusion cuda_empty_cache dataset_num_proc
    ddp_timeout deepspeed deepspeed_config defer_embedding_wgrad_compute device device_eval_batch_size
    disable_gloo_group disable_gloo_process_groups disable_group_texts disable_tqdm dtype
    early_stopping_patience enable_experimental enable_hf2mg_convert eod_mask_loss exit_on_missing_checkpoint
    finetune fix_router flash_attention flash_attn fp16_lm_cross_entropy fp8_amax_compute_algo
    fp8_amax_history_len fsdp_config_cpu_ram_efficient_loading gradient_checkpointing_kwargs_use_reentrant
    gradient_clipping group_by_length img_w keep_last keep_last_n_checkpoints language_abbr leaf_module
    lora_alpha lora_bias lora_dropout lora_fusion low_cpu_mem_usage make_vocab_size_divisible_by
    max_padding_length mid_level_dataset_surplus model_attn_config_attn_impl
    model_config_overrides_attn_config_attn_impl model_config_overrides_max_seq_len
    model_config_overrides_n_positions model_init_device model_kwargs model_peft_config_lora_alpha
    model_peft_config_lora_dropout model_pretrained model_type model_type_hf model_use_auth_token
    moe_grouped_gemm moe_permute_fusion moe_router_bias_update_rate moe_router_dtype
    moe_router_enable_expert_bias moe_router_force_load_balancing moe_router_load_balancing_type
    moe_router_pre_softmax moe_router_score_function moe_router_topk_scaling_factor mscale mscale_all_dim
    mtp_loss_scaling_factor no_async_tensor_model_parallel_allreduce no_bias_dropout_fusion
    no_check_for_nan_in_loss_and_grad no_create_attention_mask_in_dataloader no_load_rng
    no_log_loss_scale_to_tensorboard no_mmap_bin_files no_pipeline_parallel no_position_embedding
    no_query_key_layer_scaling no_save_optim no_save_rng no_shared_storage
    no_use_tokenizer_model_from_checkpoint_args norm_target_loss norm_topk_prob normalize_advantage
    num_dataset_builder_threads num_labels num_prompt_examples optimizer_name original_max_position_embeddings
    overlap_p2p_communication_warmup_flush overlap_param_gather packing pad_to_max_length pad_to_sequence_len
    peft_config_lora_alpha per_device_eval_batch_size pretraining_tp recompute_method recompute_num_layers
    repeated_dataloader report_to reset_attention_mask reset_position_ids reset_progress
    reuse_grad_buf_for_mxfp8_param_ag sample_packing seq_aux seq_length stage te_rng_tracker tf32
    tokenized_mds_train tokenizer_type torch_dtype transformer_impl truncate_source use_fast use_fast_tokenizer
    use_flash_attn use_flash_attn_v2 use_llama2_rotary_position_embeddings use_mcore_models
    use_persistent_ckpt_worker use_precision_aware_optimizer use_reentrant use_rope_scaling use_slow_tokenizer
    use_te wgrad_deferral_limit hybrid_zero_optimizer_clip_grad_norm hybrid_zero_optimizer_reduce_bucket_size
    model_embed_split_hidden model_parallel_output moe_eval_capacity_factor moe_min_capacity moe_use_rts
    parallel_weight_memory_pool parallel_weight_overlap
    """
)
"""Whole names without effect."""
_RECIPES: Final = re.compile(
    r"(?:use_fused|no_\w+_fusion|\w+_fusion|rope_scaling|rotary|yarn|(?:use_)?liger|moe_aux|moe_z)\w*"
)
"""Fused kernels, which are priced as usual, positions and losses."""
_QUIET: Final = re.compile(
    r"(?:model_)?(?:fp8_(?:hybrid|interval|margin|wgrad|amax_\w+)|ub_tp_comm_overlap_cfg_\w+|fsdp_sharding_strategy"
    r"|cpu_offloading_\w+)|fp16_\w+|(?:model_config_|model_model_config_)?hidden_act|output_layer_parallelism"
    r"|checkpoint_num_layers|scan_layers|\w*initializer_range|\w*flash_attention_block_size|model_attn_impl|model_\w+_pdrop|multiple_of|parallelism_(?:spmd_backend|fsdp_reshard_after_forward)|quantize_\w+_fqns|(?:no_)?ckpt_\w+"
    r"|data_parallel_shard_dim|batch_size_val|fsdp_config_\w*cpu_ram_efficient_loading|lora_(?:alpha|dropout|bias)"
    r"|gradient_checkpointing|average_tokens_across_devices|embed_layernorm"
)
"""Names with such words that are read elsewhere, or that set no more than numbers of a format."""
_MATTERS: Final = _words(
    """
    compress compression cpu experts fp4 fp8 freeze frozen heads hidden layers lora offload offloading parallel
    parallelism pipeline prune quant quantization quantize recompute shard sharding sparse spectrum window
    """
)
"""Words of names that no other word makes harmless."""
MOST: Final = 12
"""Names that are listed."""


def without_effect(name: str) -> bool:
    """Whether a name says by its words that it changes neither time nor memory.

    >>> without_effect("lr-decay-style"), without_effect("dataset.path"), without_effect("recompute-vision")
    (True, True, False)
    >>> without_effect("adam-offload")
    False
    """
    plain, words = _plain(name)
    starts = {"_".join(words[:number]) for number in (1, 2)}
    if plain in PLAIN or _QUIET.fullmatch(plain):
        return True
    if not _MATTERS.isdisjoint(words):
        return False
    return bool(starts & FIRST) or words[-1] in LAST or bool(_RECIPES.fullmatch(plain))


def _plain(name: str) -> tuple[str, list[str]]:
    plain = name.replace("-", "_").replace(".", "_").lower()
    return plain, plain.split("_")


OFF: Final = frozenset({"false", "no", "none", "null", "0", "", "[]", "()", "{}"})
"""Values of names that are off."""


def unread_names(facts: Facts, values: Mapping[str, object], seen: set[str], sign: str = "", *, all_of: bool) -> None:
    """Lists the names that no rule looked for and that are on: ``all_of`` them, or those with a word that matters."""
    on = [name for name, value in values.items() if name not in seen and str(value).lower() not in OFF]
    found = {name: values[name] for name in on if not without_effect(name)}
    own_choices(facts, found, sign)
    left = [f"{sign}{name}" for name in found if all_of or not _MATTERS.isdisjoint(_plain(name)[1])]
    if left:
        more = f" and {len(left) - MOST} more" if len(left) > MOST else ""
        facts.doubt(f"{', '.join(left[:MOST])}{more} may change time or memory")


def unsaid(facts: Facts, settings: Settings, pattern: str = ".*", sign: str = "", *, all_of: bool = True) -> None:
    """What is open and no key asks for, and names that no rule looked for.

    ``all_of`` is false for files that spell out their framework's defaults.
    """
    for place, each in settings.undecided.items():
        is_asked = any(set(each.needs) <= set(needs) for needs in facts.missing.values())
        if place not in facts.asked_places and not is_asked:
            facts.doubt(f"{place} is not decided ({', '.join(each.needs)})")
    if pattern:
        values = {name: settings[name].needs or value for name, value in settings.values_of(pattern).items()}
        unread_names(facts, values, settings.seen, sign, all_of=all_of)
