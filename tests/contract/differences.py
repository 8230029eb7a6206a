"""Contract tests that the embedded cluster does not run, with the difference to a real one as the reason.

Every other test of a module with `BOTH_SIDES` must pass. `docs/embedded.md` describes the differences in words.
The tests ask a server only for what our programs use.
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
        "test_process_kubelet::test_idle_node_writes_nothing_but_its_lease",
    ),
    "nothing plays the kubelets of its nodes": (
        "test_job_api::test_deleted_job_is_gone_after_its_pods",
        "test_job_api::test_deleted_pod_fails_its_job_and_gets_no_successor",
        "test_job_api::test_pod_that_got_a_node_meanwhile_is_not_taken_back",
    ),
    "quantities stay as they were written": (
        "test_wire_jobs::test_quantity_may_be_a_number_and_is_kept_in_its_shortest_form",
        "test_wire_updates::test_patch_of_a_node_status_keeps_the_spec",
    ),
    "times stay as they were written": (
        "test_wire_others::test_time_with_an_offset_is_kept_as_utc",
        "test_wire_others::test_time_needs_six_digits_of_a_second",
    ),
    "unknown fields are found only in Jobs": ("test_wire_others::test_unknown_fields_are_judged_on_a_put_too",),
    "a given selector is overwritten, not refused": ("test_wire_jobs::test_selector_of_a_job_is_set_by_the_server",),
    "the timeout of a create is not read: a create takes no time": ("test_wire_jobs::test_create_may_have_a_timeout",),
    "an Event may be about an object of another namespace": (
        "test_wire_others::test_event_must_be_in_the_namespace_of_its_object",
    ),
}
NAMES = frozenset(name for names in NOT_EMBEDDED.values() for name in names)
