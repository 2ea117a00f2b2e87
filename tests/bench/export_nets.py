#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Export nets as people have them, for part_exports.py: both of PyTorch's exporters, several opsets.

    ./export_nets.py OUT [NET ...]

Writes OUT/NET.EXPORTER.OPSET.onnx and prints one line a file. Weights are random: what is tested is the graph.
A net is exported with an open batch where its exporter can, else with a batch of 1. Needs PyTorch,
torchvision, timm, transformers, onnxscript; for YOLO's nets ultralytics.
"""

import logging
import sys
import warnings
from pathlib import Path

import torch
from torch import nn

# Of timm, each by one exporter at one opset; the plain ones by all
VISION = """
resnet18 resnet26d skresnet18 resnest14d res2net50_14w_8s botnet26t_256 lambda_resnet26t gcresnet33ts regnetx_002
regnety_002 densenet121 dla34 ese_vovnet19b_dw hrnet_w18_small selecsls42 xception41 inception_v3
mobilenetv2_100 mobilenetv3_small_100 mobilenetv4_conv_small mnasnet_small lcnet_050 hardcorenas_a rexnet_100
efficientnet_b0 efficientnet_lite0 tinynet_e ghostnet_050 ghostnetv2_100 mobileone_s0 repvit_m0_9 repvgg_a0
starnet_s1 hgnetv2_b0 eca_nfnet_l0 edgenext_xx_small mobilevit_xxs mobilevitv2_050 efficientvit_b0
efficientformer_l1 fastvit_t8 convnext_atto convnextv2_atto mambaout_femto poolformer_s12 focalnet_tiny_srf
coatnet_nano_rw_224 maxvit_nano_rw_256 vit_tiny_patch16_224 deit_tiny_distilled_patch16_224 cait_xxs24_224
xcit_nano_12_p16_224 swin_tiny_patch4_window7_224 pvt_v2_b0 twins_svt_small crossvit_tiny_240 levit_128s
visformer_tiny pit_ti_224 convit_tiny tiny_vit_5m_224 volo_d1_224 davit_tiny nest_tiny eva02_tiny_patch14_224
mixer_s32_224 gmlp_ti16_224 resmlp_12_224
""".split()
WAYS = [("ts", 17), ("dynamo", 20), ("dynamo", 23), ("ts", 20)]
EVERY_WAY = {"resnet18", "mobilenetv3_small_100", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"}


class Text(nn.Module):
    """A transformers model as tokens (and mask) to its first output."""

    def __init__(self, model, pick, **more):
        super().__init__()
        self.model, self.pick, self.more = model, pick, more

    def forward(self, input_ids, attention_mask):
        return self.pick(self.model(input_ids=input_ids, attention_mask=attention_mask, **self.more))


class Plain(nn.Module):
    """A transformers model of one float input."""

    def __init__(self, model, name, pick, **more):
        super().__init__()
        self.model, self.name, self.pick, self.more = model, name, pick, more

    def forward(self, x):
        return self.pick(self.model(**{self.name: x}, **self.more))


class Tagger(nn.Module):
    """Token embedding, a recurrent net in both directions, a class for each token."""

    def __init__(self, kind):
        super().__init__()
        self.embed = nn.Embedding(500, 64)
        self.cell = kind(64, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(96, 12)

    def forward(self, input_ids):
        return self.head(self.cell(self.embed(input_ids))[0])


def hidden(output):
    return output.last_hidden_state


def logits(output):
    return output.logits


def tokens(length=32):
    return torch.randint(0, 500, (1, length)), torch.ones(1, length, dtype=torch.long)


def text_nets():
    """name -> (model, arguments, input names), made when asked for."""
    import transformers as t
    small = dict(vocab_size=500, hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=192)
    names = ["input_ids", "attention_mask"]

    def text(make):
        return lambda: (Text(*make()), tokens(), names)

    def decoder(config, model, **more):
        return text(lambda: (model(config(**{**small, **more, "use_cache": False, "attn_implementation": "eager"})),
                             logits))

    def gpt2():
        return t.GPT2LMHeadModel(t.GPT2Config(vocab_size=500, n_embd=96, n_layer=2, n_head=4, use_cache=False)), logits

    def t5():
        config = t.T5Config(vocab_size=500, d_model=96, d_kv=24, d_ff=192, num_layers=2, num_heads=4)
        return t.T5EncoderModel(config), hidden

    def whisper():
        config = t.WhisperConfig(d_model=96, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=192,
                                 decoder_layers=1, decoder_attention_heads=4, decoder_ffn_dim=192, num_mel_bins=80,
                                 max_source_positions=100)
        return Plain(t.WhisperModel(config).encoder, "input_features", hidden), (torch.randn(1, 80, 200),), ["x"]

    def wav2vec2():
        config = t.Wav2Vec2Config(**{**small, "vocab_size": 32}, conv_dim=(64,) * 7, num_feat_extract_layers=7)
        return Plain(t.Wav2Vec2Model(config), "input_values", hidden), (torch.randn(1, 8000),), ["x"]

    def segformer():
        config = t.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 64, 96], decoder_hidden_size=64)
        return Plain(t.SegformerForSemanticSegmentation(config), "pixel_values", logits), \
            (torch.randn(1, 3, 128, 128),), ["x"]

    def detr():
        config = t.DetrConfig(use_pretrained_backbone=False, use_timm_backbone=True, backbone="resnet18", d_model=64,
                              encoder_layers=2, decoder_layers=2, encoder_ffn_dim=128, decoder_ffn_dim=128,
                              encoder_attention_heads=4, decoder_attention_heads=4, num_queries=10)
        return Plain(t.DetrForObjectDetection(config), "pixel_values", lambda o: (o.logits, o.pred_boxes)), \
            (torch.randn(1, 3, 128, 128),), ["x"]

    def mamba():
        config = t.MambaConfig(vocab_size=500, hidden_size=96, num_hidden_layers=2, state_size=8, use_cache=False)
        return Text(t.MambaForCausalLM(config), logits), tokens(16), names

    def deberta():
        config = t.DebertaV2Config(**small, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=32,
                                   max_relative_positions=-1, norm_rel_ebd="layer_norm", share_att_key=True,
                                   max_position_embeddings=64)
        return t.DebertaV2Model(config), hidden

    def tagger(kind):
        return lambda: (Tagger(kind), (tokens()[0],), ["input_ids"])

    return {
        "bert": text(lambda: (t.BertModel(t.BertConfig(**small), add_pooling_layer=False), hidden)),
        "roberta": text(lambda: (t.RobertaModel(t.RobertaConfig(**small), add_pooling_layer=False), hidden)),
        "deberta": text(deberta), "gpt2": text(gpt2), "t5": text(t5),
        "llama": decoder(t.LlamaConfig, t.LlamaForCausalLM, num_key_value_heads=2),
        "qwen3": decoder(t.Qwen3Config, t.Qwen3ForCausalLM, num_key_value_heads=2, head_dim=24),
        "gemma": decoder(t.GemmaConfig, t.GemmaForCausalLM, num_key_value_heads=1, head_dim=24),
        "phi3": decoder(t.Phi3Config, t.Phi3ForCausalLM, num_key_value_heads=2, pad_token_id=0),
        "mamba": mamba, "whisper": whisper, "wav2vec2": wav2vec2, "segformer": segformer, "detr": detr,
        "lstm_tagger": tagger(nn.LSTM), "gru_tagger": tagger(nn.GRU), "rnn_tagger": tagger(nn.RNN),
    }


def detection_nets():
    from torchvision.models import detection
    picture = ([torch.rand(3, 320, 320)],)

    def make(build, **more):
        """Random weights are sure of nothing, and those of heads are too small to tell boxes apart."""
        def lively():
            model = build(weights=None, weights_backbone=None, **more)
            for name, part in model.named_modules():
                if isinstance(part, (nn.Conv2d, nn.Linear)):
                    nn.init.kaiming_normal_(part.weight)
                    part.weight.data *= 0.05 if "bbox" in name or "cls" in name else 1  # boxes near their anchors
            return model, picture, ["x"]
        return lively

    return {"ssdlite": make(detection.ssdlite320_mobilenet_v3_large, score_thresh=0.001),
            "fasterrcnn": make(detection.fasterrcnn_mobilenet_v3_large_320_fpn, box_score_thresh=0.001)}


def yolo_nets():
    """Ultralytics' nets with their boxes decoded, as their own exporter writes them."""
    def make(config):
        def built():
            from ultralytics.nn.tasks import DetectionModel
            model = DetectionModel(config, verbose=False)
            model.model[-1].export, model.model[-1].format = True, "onnx"
            return model, (torch.rand(1, 3, 320, 320),), ["x"]
        return built

    return {name: make(name + ".yaml") for name in ("yolov5n", "yolov8n", "yolo11n")}


def vision_net(name):
    import timm
    model = timm.create_model(name, pretrained=False)
    for weight in model.parameters():  # heads that begin with zeros give nothing to compare
        if weight.dim() > 1 and not weight.any():
            nn.init.normal_(weight, std=0.05)
    size = model.pretrained_cfg.get("input_size", (3, 224, 224))
    return model, (torch.randn(1, *size),), ["x"]


def export_once(model, arguments, names, path, way, opset, free):
    """free: the batch stays open."""
    if way == "ts":
        axes = {name: {0: "batch"} for name in names} if free else None
        torch.onnx.export(model, arguments, str(path), opset_version=opset, dynamo=False, input_names=names,
                          dynamic_axes=axes)
        return
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = tuple({0: batch} for _ in names) if free else None
    if free:
        arguments = tuple(torch.cat([a, a]) for a in arguments)  # a batch of 1 is taken for a constant
    program = torch.onnx.export(model, arguments, dynamo=True, opset_version=opset, input_names=names,
                                dynamic_shapes=shapes, verbose=False)
    program.save(str(path), external_data=False)


def export(name, make, out, ways, may_be_free=True):
    for way, opset in ways:
        path = out / f"{name}.{way}.{opset}.onnx"
        if path.exists():
            continue
        error = None
        for free in (True, False) if may_be_free else (False,):
            torch.manual_seed(1)
            try:
                model, arguments, names = make()
                export_once(model.eval(), arguments, names, path, way, opset, free)
                print(f"{path.name}: {'open batch' if free else 'batch of 1'}", flush=True)
                break
            except Exception as e:  # makers and exporters raise anything
                error = e
        else:
            path.unlink(missing_ok=True)
            print(f"{path.name}: cannot be exported: {str(error).splitlines()[0][:160]}", flush=True)


def main():
    out, wanted = Path(sys.argv[1]), set(sys.argv[2:])
    out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    nets = {name: (lambda name=name: vision_net(name)) for name in VISION} | text_nets() | yolo_nets()
    for i, (name, make) in enumerate(nets.items()):
        if not wanted or name in wanted:
            export(name, make, out, WAYS if name in EVERY_WAY else [WAYS[i % len(WAYS)]])
    for name, make in detection_nets().items():
        if not wanted or name in wanted:
            export(name, make, out, [("ts", 17)], may_be_free=False)


if __name__ == "__main__":
    main()
