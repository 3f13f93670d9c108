"""The workloads: random weights and random tokens, so that only shapes matter. No torch here."""

WORKLOADS = {
    "W1": dict(family="gpt2", layers=8, hidden=512, heads=8, kv_heads=8, ffn=2048, vocab=8192, length=256, rows=16, lr=1e-3),
    "W2": dict(family="gpt2", layers=4, hidden=128, heads=4, kv_heads=4, ffn=512, vocab=2048, length=128, rows=32, lr=1e-3),
    "W3": dict(family="bert", layers=6, hidden=384, heads=12, kv_heads=12, ffn=1536, vocab=30522, length=128, rows=32, lr=2e-5, labels=8),
    "W4": dict(family="llama", layers=4, hidden=1024, heads=8, kv_heads=4, ffn=2816, vocab=8192, length=256, rows=8, lr=1e-3),
}

WEIGHT_DECAY = 0.01  # of every parameter, as torch's AdamW does
CLIP = 1.0


def hugging_face_config(w):
    """config.json of the workload."""
    if w["family"] == "gpt2":
        return dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=w["vocab"], n_positions=w["length"], n_embd=w["hidden"],
                    n_layer=w["layers"], n_head=w["heads"], n_inner=w["ffn"], activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0,
                    attn_pdrop=0.0, layer_norm_epsilon=1e-5, initializer_range=0.02, tie_word_embeddings=True)
    if w["family"] == "bert":
        names = {str(i): f"LABEL_{i}" for i in range(w["labels"])}
        return dict(model_type="bert", architectures=["BertForSequenceClassification"], vocab_size=w["vocab"], hidden_size=w["hidden"],
                    num_hidden_layers=w["layers"], num_attention_heads=w["heads"], intermediate_size=w["ffn"], hidden_act="gelu",
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=w["length"], type_vocab_size=2,
                    initializer_range=0.02, layer_norm_eps=1e-12, pad_token_id=0, id2label=names, label2id={v: int(k) for k, v in names.items()})
    return dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=w["vocab"], hidden_size=w["hidden"],
                num_hidden_layers=w["layers"], num_attention_heads=w["heads"], num_key_value_heads=w["kv_heads"], intermediate_size=w["ffn"],
                max_position_embeddings=w["length"], rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", attention_bias=False,
                mlp_bias=False, attention_dropout=0.0, initializer_range=0.02, tie_word_embeddings=False)


def tensor_shapes(w):
    """Tensor name -> shape in model.safetensors, in Hugging Face's names and layouts."""
    h, f, v = w["hidden"], w["ffn"], w["vocab"]
    shapes = {}

    def linear(name, rows, columns, bias=True):
        shapes[name + ".weight"] = (rows, columns)
        if bias:
            shapes[name + ".bias"] = (rows,)

    def norm(name, bias=True):
        shapes[name + ".weight"] = (h,)
        if bias:
            shapes[name + ".bias"] = (h,)

    if w["family"] == "gpt2":
        shapes["transformer.wte.weight"], shapes["transformer.wpe.weight"] = (v, h), (w["length"], h)
        for i in range(w["layers"]):
            p = f"transformer.h.{i}."
            norm(p + "ln_1"), norm(p + "ln_2")
            for name, rows, columns in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, f), ("mlp.c_proj", f, h)):
                shapes[p + name + ".weight"], shapes[p + name + ".bias"] = (rows, columns), (columns,)  # stored transposed
        norm("transformer.ln_f")
    elif w["family"] == "bert":
        e = "bert.embeddings."
        shapes[e + "word_embeddings.weight"], shapes[e + "position_embeddings.weight"] = (v, h), (w["length"], h)
        shapes[e + "token_type_embeddings.weight"] = (2, h)
        norm(e + "LayerNorm")
        for i in range(w["layers"]):
            p = f"bert.encoder.layer.{i}."
            for name in ("query", "key", "value"):
                linear(p + "attention.self." + name, h, h)
            linear(p + "attention.output.dense", h, h), norm(p + "attention.output.LayerNorm")
            linear(p + "intermediate.dense", f, h), linear(p + "output.dense", h, f), norm(p + "output.LayerNorm")
        linear("bert.pooler.dense", h, h), linear("classifier", w["labels"], h)
    else:
        kv = h // w["heads"] * w["kv_heads"]
        shapes["model.embed_tokens.weight"] = (v, h)
        for i in range(w["layers"]):
            p = f"model.layers.{i}."
            norm(p + "input_layernorm", False), norm(p + "post_attention_layernorm", False)
            for name, rows, columns in (("self_attn.q_proj", h, h), ("self_attn.k_proj", kv, h), ("self_attn.v_proj", kv, h),
                                        ("self_attn.o_proj", h, h), ("mlp.gate_proj", f, h), ("mlp.up_proj", f, h), ("mlp.down_proj", h, f)):
                linear(p + name, rows, columns, False)
        norm("model.norm", False)
        shapes["lm_head.weight"] = (v, h)
    return shapes
