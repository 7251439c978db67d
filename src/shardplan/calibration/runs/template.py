"""A file of measured runs to start from."""

from __future__ import annotations

from typing import Final

TEMPLATE: Final = """\
id,framework,model,accelerator,num_accelerators,precision,sequence_length,global_batch_size,micro_batch_size,\
tp,pp,cp,vp,ep,sharding,recompute,step_time_s,peak_memory_gb,memory_kind,result,options,notes
example-1,megatron-lm,llama-3.1-8b,h100-sxm-80gb,64,bf16,8192,256,1,2,1,1,1,,zero1,none,\
3.47,49.4,allocated,ran,overlap=dp_grad,replace with a run of yours
example-2,megatron-lm,llama-3.1-70b,h100-sxm-80gb,16,bf16,8192,256,1,8,1,1,1,,zero1,none,\
,,,oom,,a run that ended out of memory has no time
"""
"""The columns that matter most, a run that ran and one that ran out of memory; all columns are in
``docs/inputs/measured-runs.md``. The figures are predictions of the defaults, to be replaced."""
