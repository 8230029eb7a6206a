"""Where the embedded cluster is not like the real one: tests of the contract that it is not asked, by reason.

Everything else of a module that says `BOTH_SIDES` it must pass. `docs/embedded.md` tells the same in words.
"""

NOT_EMBEDDED = {
    "there are no rights and no quotas: whoever knows the token may do everything": (
        "test_lease::test_missing_rights_are_named_and_end_the_term_by_time",
        "test_job_api::test_a_full_quota_is_told_and_hides_that_the_job_exists",
        "test_job_api::test_a_missing_verb_is_forbidden",
        "test_job_api::test_a_policy_denies",
        "test_job_api::test_a_missing_namespace_is_forbidden_or_for_who_may_everywhere_not_found",
        "test_job_api::test_a_terminating_namespace_says_so",
        "test_lease::test_a_namespace_that_ends_has_no_leader_and_says_why",
    ),
    "it lives in the process that asks: it cannot be stopped, frozen or audited": (
        "test_lease::test_a_silent_server_is_given_up_and_the_term_ends",
        "test_lease::test_a_server_that_is_gone_is_told_at_once",
        "test_process_kubelet_more::test_an_idle_node_says_nothing_but_that_it_lives",
    ),
    "nobody plays the kubelets of nodes that are none": (
        "test_job_api::test_a_job_goes_after_its_pods",
        "test_job_api::test_a_pod_that_is_deleted_fails_its_job_and_gets_no_successor",
    ),
    "quantities stay as they were written": (
        "test_wire_jobs::test_a_quantity_may_be_a_number_and_is_kept_as_it_is_written_best",
        "test_wire_updates::test_the_status_of_a_node_leaves_its_spec",
    ),
    "times stay as they were written": (
        "test_wire_others::test_a_time_with_an_offset_is_kept_as_utc",
        "test_wire_others::test_a_time_has_six_digits_of_a_second",
    ),
    "no program of ours asks for it, or shows it to anybody": (
        "test_cluster_job_endings::test_suspended_it_has_no_pod_to_wait_for",
        "test_cluster_jobs::test_a_change_of_its_status_is_none_of_its_generation",
        "test_cluster_jobs::test_it_gets_no_pod_and_says_so",
        "test_cluster_jobs::test_resumed_it_gets_its_pod_and_its_time_begins",
        "test_cluster_jobs::test_while_it_runs_its_pod_is_deleted_and_not_counted_as_failed",
        "test_wire_collecting::test_it_may_be_asked_for_in_the_query",
        "test_wire_defaults::test_a_variable_knows_the_version_of_what_it_reads_and_an_empty_one_has_no_value",
        "test_wire_defaults::test_its_container_says_where_its_last_words_are",
        "test_wire_defaults::test_its_quality_of_service_follows_from_its_resources",
        "test_wire_defaults::test_only_an_image_that_can_change_is_always_pulled",
        "test_wire_deletes::test_a_collection_goes_as_far_as_it_is_selected",
        "test_wire_deletes::test_a_grace_can_be_asked_for_in_the_query",
        "test_wire_deletes::test_a_rehearsal_deletes_nothing",
        "test_wire_deletes::test_the_answer_says_what_is_gone",
        "test_wire_lists::test_they_tell_how_many_are_to_come",
        "test_wire_others::test_one_that_is_not_there_is_made_by_a_put",
        "test_wire_updates::test_a_new_pod_has_none_but_pending",
        "test_wire_updates::test_it_counts_changes_of_the_spec_and_nothing_else",
    ),
    "no program of ours does it wrong": (
        "test_wire_deletes::test_it_gets_no_new_finalizer",
        "test_wire_jobs::test_there_are_three_ways_to_look_at_them",
        "test_wire_jobs::test_there_is_one_way_to_rehearse",
        "test_wire_lists::test_a_match_needs_a_version",
        "test_wire_lists::test_a_token_has_its_version_already",
        "test_wire_lists::test_there_are_two_matches",
        "test_wire_watches::test_a_watch_cannot_be_of_exactly_one_version",
        "test_wire_watches::test_what_is_no_version_is_refused",
        "test_wire_jobs::test_a_strict_server_refuses_a_key_given_twice",
        "test_wire_objects::test_a_resource_version_must_not_be_given",
        "test_wire_objects::test_it_has_to_be_said_what",
        "test_wire_objects::test_the_data_of_a_secret_is_base64",
        "test_wire_others::test_a_term_lasts_and_changes_forward",
        "test_wire_updates::test_a_finalizer_needs_a_domain",
        "test_wire_updates::test_of_a_job_what_runs_and_how_often_stays",
        "test_wire_updates::test_the_spec_of_a_pod_stays",
        "test_wire_updates::test_the_uid_of_an_object_is_for_ever",
    ),
    "unknown fields are known of Jobs alone": ("test_wire_others::test_unknown_fields_are_judged_on_a_put_too",),
    "a selector of one's own is overwritten, not refused": ("test_wire_jobs::test_its_selector_is_the_servers",),
    "how long a create may take is not read: it takes no time": (
        "test_wire_jobs::test_a_create_may_say_how_long_it_is_waited_for",
    ),
    "an Event may be about an object of another namespace": (
        "test_wire_others::test_it_lives_beside_what_it_is_about",
    ),
    "annotations of a Binding are dropped": ("test_wire_others::test_its_annotations_come_to_the_pod",),
}
NAMES = frozenset(name for names in NOT_EMBEDDED.values() for name in names)
