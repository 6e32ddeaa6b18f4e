"""What each field of a configuration means, in a sentence. Words only."""

from rlt_fsm.recorder import GROUP_EVENTS, GROUP_MS

MEANINGS: dict[str, dict[str, str]] = {
    "scheduler": {
        "mode": "Which work goes first; see [scheduling](../explanation/scheduling.md).",
        "policy": "`fcfs`: first come, first served. `priority`: lower `priority` first, then "
        "first come.",
        "enable_preemption": "Let a better request take blocks, and under `priority` a slot, from "
        "strictly worse ones.",
        "max_num_seqs": "Execution slots: most requests ACTIVE at once, and most rows of a batch.",
        "max_num_batched_tokens": "Most tokens of a batch, over all its rows.",
        "prefill_chunk_size": "Most prompt tokens of one row.",
        "min_coda_batch_size": "A coda waits for this many rows while loops are still running.",
        "max_prefill_batches_before_decode": "So many batches with prompt rows, then a decode loop "
        "goes first if one is ready.",
        "admission_scan_limit": "How many waiting requests a step looks at.",
        "max_admission_bypasses": "How often a request that does not fit may be passed by fresh "
        "worse ones; then the scan stops at it.",
        "max_waiting": "Most requests waiting that were never admitted; one more is refused with "
        "`queue-full`. Null: no limit.",
    },
    "cache": {
        "num_blocks": "Physical KV blocks over all planes. Null: as many as memory allows, decided "
        "at start.",
        "block_size": "Token positions of a block.",
        "layout": "`last_exited`: one plane for each depth, and depths that a token skipped are "
        "filled from the one it left at. `shared`: one plane, overwritten by each loop.",
        "incremental_allocation": "Take blocks as tokens come, instead of all at admission.",
        "enable_prefix_caching": "Share full prompt pages between requests whose prompts begin "
        "alike.",
        "watermark_ratio": "Share of the pool that admission leaves free while anything runs.",
        "host_snapshot_blocks": "Most blocks of offloaded KV on the host; what does not fit is "
        "rewound and replayed. Null: no limit.",
        "gpu_memory_utilization": "Share of the device's memory to use when `num_blocks` is null.",
        "kv_cache_memory_bytes": "Size of the pool in bytes, instead of `num_blocks`.",
    },
    "execution": {
        "atomic_prefill": "A prompt chunk runs through every loop in one batch. False: split "
        "prefill, one batch for each loop.",
        "async_scheduling": "Schedule the next batch before the last one's results are in.",
        "max_in_flight": "Most batches submitted and not retired, when asynchronous.",
        "cuda_graphs": "Replay captured graphs instead of launching kernels one by one.",
        "attention_backend": "Who computes paged attention; `auto` takes what the device has.",
        "batch_invariant": "The same numbers whatever else is in the batch, at some cost in speed.",
        "durability": "When events survive a crash. `step`: before the step's outputs are "
        f"returned. `group`: all but fewer than {GROUP_EVENTS:,} events, or {GROUP_MS} ms, of the "
        "steps that have ended. `off`: when the run is closed. In `step` and `group` submits and "
        "aborts are durable before their call returns.",
    },
    "exit": {
        "mode": "When a token leaves the loop. `ouro`: the gate's cumulative exit probability "
        "reaches `exit_threshold`. `ouro_delayed`: the same, read one loop late. `trace`: each "
        "request's `exit_depths`. Null: `ouro`, or `ouro_delayed` when asynchronous.",
    },
    "speculative": {
        "num_speculative_tokens": "Tokens drafted before they are verified.",
        "draft_loops": "Loops of a drafted token.",
    },
    "sampling": {
        "max_tokens": "Most tokens to sample.",
        "min_tokens": "EOS and stop ids do not stop the request before this many.",
        "temperature": "0 is greedy.",
        "top_p": "Sample from the smallest set of tokens with this probability mass.",
        "top_k": "Sample from this many best tokens; -1 is off.",
        "seed": "With the output's index it decides every draw. Null: drawn at the door and "
        "recorded.",
        "min_loops": "Fewest loops of a token.",
        "max_loops": "Most loops of a token. Null: the model's depths.",
        "exit_threshold": "Leave the loop when the gate's cumulative exit probability reaches "
        "this; 1 runs every loop.",
        "exit_depths": "Force the depth of each output (1-based loops). The first comes from the "
        "prompt, so it must be the full depth.",
        "ignore_eos": "EOS does not stop the request.",
        "stop_token_ids": "Tokens that stop the request, also with `ignore_eos`.",
        "priority": "Lower is more urgent; used under the policy `priority`.",
        "logprobs": "0: the log-probability of each sampled token. Null: none.",
    },
}
