"""graph.bit_policy: the order in which a policy and overrides win."""

from __future__ import annotations

from npubake.graph.bit_policy import override_paths, setting_path, with_bit_policy

OWN = {"match": {"names": ["/head/*"]}, "set": {"activation": "float32"}}


def test_types_come_first_then_roles_then_the_overrides() -> None:
    bits = {"roles": {"ffn": "int8", "first_layer": "int16"}, "op_types": {"Softmax": "int16", "Conv": "int8"}}
    ordered = with_bit_policy(bits, [OWN])
    assert [entry["match"] for entry in ordered] == [
        {"op_types": ["Conv"]},
        {"op_types": ["Softmax"]},
        {"roles": ["first_layer"]},
        {"roles": ["ffn"]},
        {"names": ["/head/*"]},
    ]
    assert [entry["set"]["activation"] for entry in ordered] == ["int8", "int16", "int16", "int8", "float32"]
    assert override_paths(ordered)[1:4:2] == ("quant_config.bits.op_types.Softmax", "quant_config.bits.roles.ffn")


def test_an_override_keeps_its_number_behind_a_policy() -> None:
    bits = {"op_types": {"Softmax": "int16"}}
    assert override_paths(with_bit_policy(bits, [OWN, OWN]))[1:] == ("layer_overrides[0]", "layer_overrides[1]")
    assert with_bit_policy({}, [OWN]) == (OWN,)


def test_a_setting_has_its_place_in_the_recipe() -> None:
    policy, own = override_paths(with_bit_policy({"op_types": {"Softmax": "int16"}}, [OWN]))
    assert setting_path(policy, "activation") == "quant_config.bits.op_types.Softmax"
    assert setting_path(own, "activation") == "layer_overrides[0].set.activation"
