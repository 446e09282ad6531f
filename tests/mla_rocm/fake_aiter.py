"""A stand-in for ``aiter.mla`` that computes in torch from exactly the arguments it is given.

Written from aiter's documented contract: it looks at nothing but its arguments, refuses what the
kernels refuse, and fills what they would leave undefined with NaN.
"""

import types

import torch

KERNEL_HEADS = (16, 32, 64, 128)


def module(*, old_release: bool = False) -> types.ModuleType:
    """``aiter.mla`` of a newer release, or of one before page_size and nhead_kv were arguments.

    ``calls`` of the module lists the arguments of every call by name.
    """
    made = types.ModuleType("aiter.mla")
    made.calls = []

    def newer(
        q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, max_seqlen_q,
        page_size=1, nhead_kv=1, sm_scale=None, logit_cap=0.0, num_kv_splits=None,
        num_kv_splits_indptr=None, work_meta_data=None, return_lse=False,
    ):  # fmt: skip
        given = dict(locals())
        del given["made"]
        made.calls.append(given)
        assert num_kv_splits_indptr is None and work_meta_data is None
        assert not return_lse, "no 16-head kernel that returns it"
        _decode(q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens,
                max_seqlen_q, page_size, nhead_kv, sm_scale, logit_cap)  # fmt: skip
        return None, None

    def older(
        q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, max_seqlen_q,
        sm_scale=None, logit_cap=0.0, num_kv_splits=None,
    ):  # fmt: skip
        given = dict(locals())
        del given["made"]
        made.calls.append(given)
        _decode(q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens,
                max_seqlen_q, kv_buffer.shape[1], 1, sm_scale, logit_cap)  # fmt: skip
        return None, None

    made.mla_decode_fwd = older if old_release else newer
    return made


def _decode(
    q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, max_seqlen_q,
    page_size, nhead_kv, sm_scale, logit_cap,
):  # fmt: skip
    batch, heads, width = q.shape
    assert heads in KERNEL_HEADS and q.dtype == kv_buffer.dtype == o.dtype == torch.bfloat16
    assert q.is_contiguous() and o.is_contiguous() and kv_buffer.is_contiguous()
    assert kv_buffer.shape[1:] == (page_size, nhead_kv, width) and nhead_kv == 1
    assert o.shape == (batch, heads, 512)
    for indices in (qo_indptr, kv_indptr, kv_indices, kv_last_page_lens):
        assert indices.dtype == torch.int32 and indices.device == q.device
    assert qo_indptr.tolist() == list(range(batch + 1)) and max_seqlen_q == 1
    assert len(kv_indptr) == batch + 1 and len(kv_last_page_lens) == batch
    scale = width**-0.5 if sm_scale is None else sm_scale
    assert logit_cap <= 0
    o.fill_(float("nan"))
    begins = kv_indptr.tolist()
    for sequence in range(batch):
        pages = kv_indices[begins[sequence] : begins[sequence + 1]].long()
        assert len(pages), "an empty context divides by zero"
        rows = kv_buffer[pages].flatten(0, 2).float()
        last = int(kv_last_page_lens[sequence])
        rows = rows[: (len(pages) - 1) * page_size + last]
        weights = (q[sequence].float() @ rows.T * scale).softmax(-1)
        o[sequence] = (weights @ rows[:, :512]).to(o.dtype)
