"""Contract tests that the embedded cluster does not run, with the difference to a real one as the reason.

Every other test of a module with `BOTH_SIDES` must pass. `docs/embedded.md` describes the differences in words.
"""

NOT_EMBEDDED = {
    "there are no rights and no quotas: a client with the token may do everything": (
        "test_lease::test_missing_rights_are_named_and_end_the_term_by_time",
        "test_job_api::test_full_quota_hides_that_the_job_exists",
        "test_job_api::test_missing_verb_is_forbidden",
        "test_job_api::test_policy_denies_a_job",
        "test_job_api::test_missing_namespace_is_forbidden_or_not_found",
        "test_job_api::test_terminating_namespace_says_so",
        "test_lease::test_terminating_namespace_has_no_leader_and_says_why",
    ),
    "the cluster lives in the process of the test: it cannot be stopped, frozen or audited": (
        "test_lease::test_silent_server_is_given_up_and_the_term_ends",
        "test_lease::test_absent_server_is_a_fault_at_once",
        "test_process_kubelet_more::test_idle_node_writes_nothing_but_its_lease",
    ),
    "nothing plays the kubelets of its nodes": (
        "test_job_api::test_deleted_job_is_gone_after_its_pods",
        "test_job_api::test_deleted_pod_fails_its_job_and_gets_no_successor",
    ),
    "quantities stay as they were written": (
        "test_wire_jobs::test_quantity_may_be_a_number_and_is_kept_in_its_shortest_form",
        "test_wire_updates::test_patch_of_a_node_status_keeps_the_spec",
    ),
    "times stay as they were written": (
        "test_wire_others::test_time_with_an_offset_is_kept_as_utc",
        "test_wire_others::test_time_needs_six_digits_of_a_second",
    ),
    "no program of ours asks for this, or shows it": (
        "test_cluster_job_endings::test_suspended_job_is_deleted_without_a_pod_to_wait_for",
        "test_cluster_jobs::test_change_of_a_status_leaves_the_generation",
        "test_cluster_jobs::test_suspended_job_gets_no_pod_and_says_so",
        "test_cluster_jobs::test_resumed_job_gets_its_pod_and_its_start_time",
        "test_cluster_jobs::test_pod_of_a_job_suspended_while_it_runs_is_not_counted_as_failed",
        "test_wire_collecting::test_foreground_may_be_asked_for_in_the_query",
        "test_wire_defaults::test_variable_gets_an_api_version_and_loses_an_empty_value",
        "test_wire_defaults::test_container_gets_the_default_termination_message",
        "test_wire_defaults::test_quality_of_service_follows_from_the_resources",
        "test_wire_defaults::test_only_an_image_with_a_moving_tag_is_always_pulled",
        "test_wire_deletes::test_collection_is_deleted_as_far_as_it_is_selected",
        "test_wire_deletes::test_grace_may_be_asked_for_in_the_query",
        "test_wire_deletes::test_dry_run_deletes_nothing",
        "test_wire_deletes::test_answer_says_what_is_gone",
        "test_wire_lists::test_pages_tell_how_many_items_remain",
        "test_wire_others::test_missing_lease_is_made_by_a_put",
        "test_wire_updates::test_status_of_a_new_pod_is_only_pending",
        "test_wire_updates::test_generation_counts_only_changes_of_the_spec",
    ),
    "no program of ours makes this mistake": (
        "test_wire_deletes::test_object_being_deleted_gets_no_new_finalizer",
        "test_wire_jobs::test_unknown_field_validation_is_invalid",
        "test_wire_jobs::test_unknown_kind_of_dry_run_is_invalid",
        "test_wire_lists::test_version_match_needs_a_version",
        "test_wire_lists::test_token_allows_no_version",
        "test_wire_lists::test_unknown_version_match_is_invalid",
        "test_wire_watches::test_watch_of_an_exact_version_is_invalid",
        "test_wire_watches::test_watch_of_an_invalid_version_is_refused",
        "test_wire_jobs::test_strict_server_refuses_a_key_given_twice",
        "test_wire_objects::test_create_with_a_resource_version_is_refused",
        "test_wire_objects::test_review_without_attributes_is_invalid",
        "test_wire_objects::test_data_of_a_secret_must_be_base64",
        "test_wire_others::test_length_and_count_of_a_term_must_not_be_negative",
        "test_wire_updates::test_finalizer_needs_a_domain",
        "test_wire_updates::test_template_and_completions_of_a_job_cannot_be_changed",
        "test_wire_updates::test_spec_of_a_pod_cannot_be_changed",
        "test_wire_updates::test_patch_of_the_uid_is_invalid",
    ),
    "unknown fields are found only in Jobs": ("test_wire_others::test_unknown_fields_are_judged_on_a_put_too",),
    "a given selector is overwritten, not refused": ("test_wire_jobs::test_selector_of_a_job_is_set_by_the_server",),
    "the timeout of a create is not read: a create takes no time": ("test_wire_jobs::test_create_may_have_a_timeout",),
    "an Event may be about an object of another namespace": (
        "test_wire_others::test_event_must_be_in_the_namespace_of_its_object",
    ),
    "annotations of a Binding are dropped": ("test_wire_others::test_annotations_of_a_binding_come_to_the_pod",),
}
NAMES = frozenset(name for names in NOT_EMBEDDED.values() for name in names)
