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
