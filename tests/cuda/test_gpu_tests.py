"""The tests of `tests/test_cuda.py` on the simulated GPU, so that they work when there is one.

All but the training until its loss has fallen, which takes minutes here.
"""

from tests.test_cuda import (  # noqa: F401
    corpus,
    test_a_translator_in_bf16_gives_each_line_its_candidates,
    test_after_a_recording_that_fails_there_are_random_numbers,
    test_compiled_dropout_has_one_mask_in_both_directions_and_draws_each_element_by_itself,
    test_fast_steps_are_those_of_the_plain_model,
    test_fp32_is_not_tf32,
    test_heads_too_wide_for_a_fused_kernel_train_as_the_plain_model,
    test_states_and_gradients_are_those_of_the_cpu,
    test_steps_started_as_graphs_find_what_single_kernels_find,
    test_translations_equal_those_on_the_cpu,
)
