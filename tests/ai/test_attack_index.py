"""Every attack of the binding (AIIP/HTTPS v1 3.15) and of the shared vectors, and the tests that refuse it.

A test is named beside the ids that it holds: 1 to 42 are the rows of 3.15, the others those of
`provenance_attacks.json`, and 43 to 110 those of people at a gateway.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support import as_subtests, load_shared

TESTS = Path(__file__).resolve().parents[1]
#: how many attacks and positive controls there are; the rows from 43 on are those of people at a gateway
ROWS, ATTACKS, CONTROLS = 110, 121, 10
#: rows that no test holds yet; a row leaves this set with its first test
IN_PROGRESS = {"102"}

#: file -> test -> ids, or ranges of them
PROOFS: dict[str, dict[str, str]] = {
    "bridges/test_bridge_approvals.py": {
        "test_an_approved_call_is_sent_with_its_evidence_once": "76",
        "test_attack_105_an_approval_is_for_the_call_and_the_person_of_its_state": "105",
        "test_attack_106_an_approval_is_never_asked_for_by_a_form": "106",
        "test_attack_107_only_the_evidence_approves_what_a_task_waits_for": "107",
    },
    "bridges/test_a2a_tasks.py": {
        "test_a_message_that_says_approved_approves_nothing": "107",
        "test_a_word_of_approval_runs_nothing_at_a_running_endpoint": "107",
    },
    "bridges/test_mcp_input.py": {
        "test_a_state_that_was_changed_or_is_of_another_call_is_refused": "105",
        "test_a_state_is_for_the_person_to_whom_it_was_given": "105",
        "test_a_payment_is_never_asked_for_by_a_form": "106",
        "test_a_payment_at_a_running_endpoint_is_never_asked_for_by_a_form": "106",
    },
    "ai/discovery/test_flow.py": {
        "test_a_weaker_document_is_a_downgrade": "12",
        "test_a_link_in_a_users_comment_points_nowhere": "13 prov-097",
        "test_a_link_about_another_page_is_left_out": "13 prov-096",
        "test_a_page_cannot_claim_what_another_authority_does_not_confirm": "13 prov-095",
        "test_an_origin_that_the_authority_lists_may_point_at_it": "13",
        "test_keys_of_another_origin_are_refused": "14 prov-069",
        "test_a_redirect_of_the_anchor_is_not_followed": "14 prov-093",
        "test_a_bogus_answer_stops": "15",
        "test_a_new_key_is_found_by_one_more_look": "prov-073",
        "test_a_document_that_claims_another_authority_is_refused": "prov-094",
        "test_an_answer_that_is_no_success_points_nowhere": "prov-095",
        "test_signed_dns_that_disagrees_stops_and_unsigned_dns_loses": "prov-098",
        "test_two_values_of_a_page_stop": "prov-098",
        "test_documents_that_are_no_plain_json_are_refused": "prov-103",
        "test_a_document_without_max_age_is_asked_for_again": "prov-104",
        "test_nothing_old_is_used_where_the_anchor_fails": "prov-104",
    },
    "ai/discovery/test_html.py": {
        "test_nothing_but_the_head_points_anywhere": "13 prov-097",
    },
    "ai/discovery/test_link.py": {
        "test_links_about_others_are_reported": "prov-096",
    },
    "ai/discovery/test_pins.py": {
        "test_a_weaker_document_in_the_window_is_a_downgrade": "12",
    },
    "ai/discovery/test_question.py": {
        "test_what_names_no_host_is_refused": "prov-093",
        "test_what_is_configured_is_never_weakened": "prov-101",
    },
    "ai/discovery/test_rank.py": {
        "test_weak_sources_that_disagree_are_dropped_and_reported": "prov-098",
    },
    "ai/endpoint/test_approvals.py": {
        "test_attack_75_evidence_of_another_call_is_refused": "75 85",
        "test_attack_32_76_copies_of_an_approval_have_one_effect": "32 76",
        "test_attack_76_an_approval_is_spent_for_every_other_key": "76",
        "test_attack_77_another_persons_token_or_key_cannot_use_it": "77",
        "test_attack_78_79_81_evidence_that_an_honest_approver_would_not_give_is_refused": "78 79 81",
        "test_attack_79_a_retired_key_is_refused_and_a_new_one_is_fetched": "79",
        "test_attack_81_the_requester_is_no_other_person": "81",
        "test_attack_84_input_with_two_meanings_is_refused_before_anybody_is_asked": "84",
        "test_attack_86_87_a_change_while_the_call_waits_makes_the_approval_void": "86 87",
    },
    "ai/endpoint/test_guard.py": {
        "test_paths_and_queries_with_two_meanings_are_refused": "17 20 21",
        "test_another_spelling_is_told_with_the_canonical_one": "18",
        "test_the_prefix_and_the_authority_are_exact": "22",
        "test_malformed_http_is_answered_once_and_runs_nothing": "23",
        "test_a_head_that_can_be_read_in_two_ways_is_refused": "24 prov-088",
        "test_a_body_with_a_coding_is_refused": "38",
        "test_bodies_have_a_size": "38",
        "test_deep_json_is_refused": "38",
    },
    "ai/endpoint/test_idempotency.py": {
        "test_another_request_under_the_key_is_refused": "31",
        "test_keys_of_two_callers_are_two_keys": "31",
        "test_doubles_at_the_same_moment_run_once": "31",
        "test_of_many_threads_with_stores_of_their_own_one_begins": "31",
    },
    "ai/endpoint/test_oauth_provider.py": {
        "test_a_token_for_another_resource_of_the_same_server_is_refused": "26",
    },
    "ai/endpoint/test_oauth_server.py": {
        "test_metadata_with": "27",
        "test_nobody_gets_in_by": "27",
        "test_a_new_key_is_found_at_once_and_random_ones_cost_one_question_a_minute": "30",
        "test_keys_are_asked_for_once_by_many_callers_at_the_same_time": "30",
    },
    "ai/endpoint/test_oauth_tokens.py": {
        "test_a_token_of_another_type_is_no_access_token": "5",
        "test_a_receipt_of_the_endpoint_is_no_access_token_even_with_its_claims": "5",
        "test_a_token_that_is_bound_to_its_sender_does_not_count_as_bearer": "12 prov-082",
        "test_a_token_in_another_field_or_in_the_query_is_never_read": "26",
        "test_a_token_with": "27",
        "test_clocks_may_be_a_minute_apart": "40",
        "test_another_scheme_is_as_good_as_nothing": "prov-082",
        "test_what_the_issuer_did_not_sign_is_refused_in_one_and_the_same_way": "prov-121",
    },
    "ai/endpoint/test_client_certificates.py": {
        "test_attack_67_a_bound_token_without_its_certificate_is_refused": "67",
        "test_attack_69_another_certificate_is_refused": "24 69 prov-091",
        "test_attack_69_a_certificate_that_no_authority_vouches_for_now_ends_the_connection": "69",
        "test_a_listed_proxy_passes_a_certificate_on": "69 prov-091",
        "test_a_proxy_that_is_not_listed_is_not_believed": "69 prov-091",
        "test_nginx_verifies_clients_and_passes_their_certificates_on": "69 prov-091",
    },
    "ai/endpoint/test_sender.py": {
        "test_attack_71_a_signature_of_the_message_authenticates_nobody": "71",
        "test_a_proof_without_a_query_is_for_a_url_with_one": "prov-ok-08",
        "test_attack_59_a_chain_of_actors_that_does_not_tell_who_acts_is_refused": "59",
        "test_attack_60_a_token_for_another_authority_is_refused": "60",
        "test_attack_61_a_proof_that_is_not_one_public_key_is_refused": "28 61 prov-086..090",
        "test_attack_62_a_proof_for_another_request_is_refused_whatever_host_is_named": (
            "28 62 prov-078..080"
        ),
        "test_attack_63_a_proof_for_another_token_or_of_another_key_is_refused": "28 63 prov-081..082",
        "test_attack_64_a_proof_of_another_time_or_without_a_current_nonce_is_refused": (
            "28 64 prov-084..085"
        ),
        "test_attack_65_of_many_copies_of_one_proof_one_is_accepted": "28 65 prov-083",
        "test_attack_66_a_store_that_is_full_or_away_refuses_all_and_forgets_nothing": "29 66",
        "test_attack_66_an_id_is_short": "66",
        "test_attack_67_a_token_is_not_accepted_in_another_way_than_it_is_bound": "12 67 prov-082",
        "test_attack_68_a_proof_for_another_body_or_query_has_no_effect": "68",
    },
    "ai/endpoint/test_resources.py": {
        "test_a_failure_is_a_signed_problem_that_tells_no_secrets": "39",
        "test_the_log_of_refusals_says_nothing_of_callers_faults": "39",
        "test_keys_may_change_while_requests_are_under_way": "prov-074",
        "test_an_independent_library_verifies_the_receipt": "prov-ok-04",
    },
    "ai/gateway/test_review.py": {
        "test_what_cannot_be_seen_is_named": "83",
        "test_long_values_are_cut_with_a_count": "83",
        "test_an_authority_is_shown_in_both_forms": "83",
        "test_a_call_with_two_meanings_is_refused_before_it_is_shown": "84",
    },
    "ai/endpoint/test_task_crashes.py": {
        "test_no_body_runs_twice_and_no_task_is_lost_when_the_owner_is_killed": "96",
        "test_an_owner_that_was_taken_for_dead_changes_nothing": "95",
        "test_a_202_has_its_task_on_disk": "96",
    },
    "ai/endpoint/test_task_store.py": {
        "test_a_caller_without_a_token_is_counted_by_its_address": "97",
        "test_the_writes_of_an_owner_that_was_replaced_change_no_row": "95",
    },
    "ai/endpoint/test_tasks.py": {
        "test_a_task_of_another_caller_does_not_exist": "33 90 91",
        "test_a_task_of_another_authority_does_not_exist": "91",
        "test_events_are_not_resumed_at_a_number_that_does_not_exist": "93",
        "test_cancelling": "94",
        "test_a_cancellation_at_the_moment_of_the_end_leaves_one_state": "94",
        "test_limits_of_tasks": "97",
        "test_progress_is_cut_and_events_have_a_limit": "97",
        "test_a_task_that_reports_without_end_keeps_its_limits_and_its_end": "97",
        "test_the_same_key_is_the_same_task_and_another_body_is_refused": "98",
    },
    "ai/gateway/test_problems.py": {
        "test_no_answer_tells_which_check_of_a_receipt_failed": "prov-121",
    },
    "ai/test_anchor.py": {
        "test_a_member_that_cannot_be_what_it_should_refuses_the_document": "prov-068",
        "test_what_is_no_plain_no_asks_for_the_strict_thing": "prov-102",
        "test_missing_policy_members_ask_for_signed_results_alone": "prov-102",
        "test_an_unknown_way_to_sign_in_is_refused": "prov-102",
        "test_what_has_more_than_one_reading_is_refused": "prov-103",
        "test_the_cap_is_exact": "prov-103",
        "test_the_five_members_of_the_draft_are_a_document": "prov-ok-09",
    },
    "ai/test_client.py": {
        "test_what_the_caller_asks_for_at_least_is_not_waived": "12 prov-101",
        "test_keys_may_change_while_a_client_holds_the_old_set": "prov-ok-05 prov-074",
    },
    "ai/test_exchange.py": {
        "test_a_token_goes_as_a_secret_and_the_receipt_is_made_out_to_its_client": "26",
        "test_an_unsigned_refusal_is_a_failure_that_nobody_vouches_for": "prov-064",
    },
    "ai/test_hostile_endpoint.py": {
        "test_a_forged_receipt_releases_nothing": (
            "1 2 3 4 5 6 7 40 prov-ok-01 prov-001..006 prov-008..009 prov-011..012 prov-015 prov-023 "
            "prov-030 prov-032 prov-041..042 prov-044..046 prov-048..052 prov-055..058 prov-077"
        ),
        "test_an_earlier_answer_given_again_is_refused": "7 prov-053 prov-059",
        "test_a_changed_answer_releases_nothing": "8 11 prov-060 prov-062..063",
        "test_a_stream_that_was_touched_has_no_result": "10 prov-065..066",
        "test_the_events_of_another_stream_are_refused": "10",
        "test_keys_come_from_the_anchor_alone": "14 prov-068..069",
        "test_a_redirect_of_the_service_is_not_followed": "25",
        "test_a_random_kid_makes_the_client_fetch_the_keys_once_more_and_not_each_time": "30 prov-073",
        "test_a_key_set_that_no_authority_should_publish_stops_everything": "30 prov-007 prov-072",
    },
    "ai/test_credentials.py": {
        "test_a_token_goes_only_to_its_own_authority": "60",
    },
    "ai/test_oauth_client.py": {
        "test_a_wrong_identity_assertion_is_refused_by_us_and_by_the_server": "58",
        "test_a_code_is_good_once_for_its_own_client_and_verifier": "110",
        "test_a_redirect_to_another_url_or_from_another_issuer_is_not_redeemed": "110",
        "test_pkce_cannot_be_left_out_of_a_request": "110",
    },
    "ai/test_oauth_hostile.py": {
        "test_attack_89_an_answer_for_another_request_or_without_a_key_is_not_used": "89",
        "test_attack_89_a_sign_in_elsewhere_that_has_ended_is_not_asked_for_again": "89",
        "test_metadata_of_a_foreign_issuer_or_with_foreign_urls_is_refused_before_a_secret_is_sent": "55",
        "test_nothing_is_sent_to_a_server_that_only_the_discovery_document_knows": "55",
        "test_a_token_response_is_not_used_with": "57 prov-092",
        "test_a_token_is_not_used_with": "57",
        "test_an_exchanged_token_names_its_actor_unless_the_row_allows_impersonation": "57",
        "test_an_identity_assertion_of_another_kind_or_with_a_foreign_signature_is_not_redeemed": "58",
    },
    "ai/test_protocol_review.py": {
        "test_two_ports_of_one_host_are_two_authorities": "4 prov-076..077",
        "test_a_body_with_a_member_twice_reaches_neither_policy_nor_function": "6",
        "test_a_receipt_of_an_algorithm_that_the_document_does_not_name_is_refused": "12",
        "test_an_authority_that_speaks_older_tls_is_not_asked": "12 prov-115",
        "test_a_redirect_of_a_key_set_is_not_followed": "14 prov-070",
        "test_a_service_elsewhere_answers_with_the_anchors_keys_or_not_at_all": "14",
        "test_a_name_that_leads_inside_is_not_connected_to": "16 prov-071",
        "test_of_many_who_meet_a_new_key_one_asks_and_all_go_on": "30 prov-ok-05 prov-074",
        "test_a_clock_of_the_endpoint_may_be_off_by_a_minute": "40",
        "test_a_clock_of_the_client_may_be_off_by_a_minute": "40 prov-ok-06",
        "test_variables_of_a_proxy_lead_no_request_elsewhere": "42",
        "test_a_signed_result_with_a_member_twice_is_not_read": "prov-061",
        "test_a_clock_that_jumps_back_brings_no_receipt_back": "prov-067",
        "test_old_keys_are_not_used_where_new_ones_cannot_be_had": "prov-075",
        "test_results_are_signed_whatever_an_authority_says": "prov-101",
        "test_an_authority_may_sign_with_the_optional_algorithms_if_it_says_so": "prov-ok-03",
    },
    "ai/test_replay.py": {
        "test_a_fleet_knows_an_id_once": "65",
        "test_a_full_store_refuses_and_forgets_nothing": "29 prov-054",
        "test_of_many_at_once_one_is_the_first": "29",
    },
    "ai/test_tasks.py": {
        "test_the_result_of_another_task_is_refused": "9 92",
        "test_a_result_whose_receipt_names_no_task_is_refused": "9 92",
        "test_events_that_were_changed_are_refused": "93",
        "test_events_in_another_order_are_refused": "93",
        "test_events_resumed_at_another_number_are_refused": "93",
        "test_events_survive_fifty_cuts": "93",
    },
    "net/test_client_certificates.py": {
        "test_a_connection_with_one_client_certificate_is_never_used_for_another": "70",
    },
    "e2e/test_dns_discovery.py": {
        "test_attack_15_a_forged_answer_loses_before_a_resolver_that_validates": "15",
        "test_attack_15_a_forged_answer_loses_before_pinned_keys": "15",
        "test_attack_15_servfail_stops": "15",
        "test_attack_15_an_ad_bit_that_does_not_count_leads_nowhere": "15",
        "test_an_absence_with_its_proof_is_an_absence": "15",
        "test_a_signed_zone_that_contradicts_the_document_stops": "prov-098",
        "test_prov_099_an_unsigned_pointer_is_a_hint_that_the_document_overrules": "prov-099",
        "test_prov_100_a_place_inside_is_refused_and_nothing_is_connected_to": "prov-100",
    },
    "net/test_detour.py": {
        "test_prov_100_a_place_that_the_policy_refuses_is_not_connected_to": "16 prov-100",
    },
    "net/test_guard.py": {
        "test_a_name_is_looked_up_once_and_tls_and_host_keep_it": "16 prov-071",
        "test_scn_016_proxy_variables_are_not_read": "42",
    },
    "net/test_records.py": {
        "test_attack_15_a_lie_about_a_pinned_zone_is_bogus_whoever_brings_it": "15",
    },
    "net/test_ssrf_shared.py": {
        "test_every_case_comes_out_as_recorded": "16",
    },
    "net/test_tls.py": {
        "test_tls_1_2_is_refused_where_1_3_is_the_least": "12 prov-115",
    },
    "net/test_transport.py": {
        "test_a_small_body_that_would_become_a_huge_one_is_stopped": "38",
    },
    "server/gateway/test_approvals.py": {
        "test_a_payment_is_approved_by_another_person_and_happens_once": "83",
        "test_a_denial_and_a_withdrawal_are_final": "78",
        "test_attack_75_80_a_challenge_of_another_call_is_not_shown": "75 80",
        "test_attack_81_who_asked_cannot_approve_and_strangers_see_nothing": "81",
        "test_attack_82_the_same_call_is_one_record_and_twenty_wait": "82",
        "test_attack_73_a_decision_needs_the_form_of_this_browser_and_what_was_shown": "73",
    },
    "cli/test_ai_approve.py": {
        "test_attack_88_without_a_terminal_nothing_is_approved": "88",
    },
    "server/gateway/test_approval_api.py": {
        "test_attack_77_evidence_for_one_dpop_key_is_no_use_with_another": "77",
        "test_attack_88_a_token_that_is_not_for_decisions_decides_nothing": "88",
        "test_attack_88_a_program_never_decides_about_the_call_that_it_has_brought": "88",
        "test_attack_89_the_answer_to_another_request_is_not_given": "89",
        "test_attack_89_a_refusal_and_a_request_without_an_answer_end": "89",
    },
    "server/gateway/test_attacks.py": {
        "test_what_does_not_prove_itself_is_not_released": "8 11 prov-062 prov-120",
        "test_a_stream_without_its_end_is_seen_to_fail": "10",
        "test_an_address_that_is_not_public_is_refused": "16",
        "test_an_ambiguous_address_is_refused_and_nobody_is_asked": "17 18 19 20 21 prov-105..108 prov-110",
        "test_a_trick_with_the_prefix_is_not_the_prefix": "22",
        "test_a_request_that_two_servers_read_differently_is_refused": "23 prov-088 prov-109 prov-114",
        "test_malformed_http_is_answered_with_400": "23",
        "test_fields_of_the_caller_do_not_go_up_and_nothing_is_passed_through": (
            "24 26 prov-111..112 prov-118"
        ),
        "test_a_redirect_is_not_followed_and_not_passed_on": "25",
        "test_fields_of_a_lying_authority_do_not_come_down": "25 36 prov-116",
        "test_another_sites_page_cannot_invoke": "34",
        "test_a_get_never_has_effects": "34",
        "test_a_form_without_its_token_does_nothing": "34",
        "test_every_answer_is_private_and_inert": "35 37 prov-117",
        "test_a_body_that_is_too_large_is_refused_by_its_word_and_by_its_size": "38",
        "test_a_head_that_is_too_large_is_refused": "38",
        "test_the_gateway_is_no_authority": "prov-114",
        "test_an_authority_with_a_certificate_of_a_stranger_is_refused": "prov-115",
        "test_a_post_whose_answer_is_lost_is_asked_for_once": "prov-119",
    },
    "server/gateway/test_browser.py": {
        "test_a_page_of_the_gateway_can_fetch_nothing": "35",
    },
    "server/gateway/test_nginx.py": {
        "test_the_target_is_not_touched_on_the_way": "22",
        "test_smuggled_requests_do_not_come_through": "23",
        "test_only_a_trusted_proxy_is_believed": "24 prov-111",
    },
    "server/gateway/test_people.py": {
        "test_the_cookie_is_bound_to_the_host_and_hidden_from_scripts": "46",
        "test_a_step_up_satisfies_both_and_changes_the_session_id": "51",
        "test_a_step_up_that_is_not_one_is_told_once": "52",
    },
    "server/gateway/test_people_attacks.py": {
        "test_a_response_counts_in_its_own_browser_and_flow_and_once": "43",
        "test_a_response_of_another_issuer_is_refused": "44",
        "test_a_form_or_an_image_of_another_site_signs_nobody_in": "48",
        "test_an_id_token_with_a_wrong_claim_signs_nobody_in": "45",
        "test_an_id_token_that_the_provider_did_not_sign_signs_nobody_in": "45",
        "test_a_planted_session_cookie_is_not_kept": "46",
        "test_a_sign_in_leads_to_a_path_of_this_gateway": "47",
        "test_a_session_ends_by_idleness_and_by_age": "51",
        "test_a_form_of_another_site_or_session_changes_nothing": "73",
        "test_pages_of_people_cannot_be_framed_or_scripted": "74",
        "test_what_is_no_logout_token_ends_nothing": "49",
        "test_a_logout_token_counts_once": "49",
        "test_a_sign_in_under_way_does_not_outlive_a_sign_out": "50",
        "test_a_refresh_or_an_exchange_does_not_bring_a_session_back": "50",
        "test_attack_50_a_refresh_under_way_does_not_outlive_a_sign_out": "50",
        "test_attack_52_a_step_up_that_proves_too_little_is_refused_once": "52",
        "test_a_dump_of_the_store_opens_no_token": "53",
        "test_a_record_that_was_changed_does_not_open": "104",
        "test_a_secret_that_was_rotated_out_ends_sessions": "104",
        "test_no_secret_and_no_name_is_in_the_store_the_logs_or_the_answers": "109",
    },
    "server/gateway/test_delegation.py": {
        "test_two_people_never_share_a_token": "54 prov-113",
        "test_attack_90_a_task_of_another_person_is_the_same_404_as_no_task": "90",
        "test_an_authority_whose_server_the_operator_does_not_know_gets_nothing": "55",
        "test_fields_that_prove_a_caller_stay_at_the_gateway": "56",
        "test_a_link_or_a_prefetch_of_any_effect_describes_and_acts_not": "72",
    },
    "server/gateway/test_programs.py": {
        "test_attack_60_a_token_is_good_at_its_own_resource_only": "60",
        "test_a_token_is_no_use_without_its_proof": "62 64 67 68",
        "test_a_proof_is_accepted_once": "65",
        "test_a_task_of_a_program_is_open_to_its_person_only": "90",
        "test_attack_99_a_program_changes_nothing_without_the_consent_of_its_person": "99",
        "test_attack_99_a_consent_that_was_revoked_a_second_ago_covers_nothing": "99",
        "test_a_question_is_for_its_person_and_answered_by_the_form_of_this_browser": "73",
        "test_attack_100_a_program_is_shown_by_its_id_and_proof_and_not_by_its_own_words": "100",
    },
    "server/gateway/test_rates.py": {
        "test_a_thousand_addresses_of_one_network_share_one_bucket_of_the_fleet": "101",
        "test_without_the_store_every_machine_allows_its_share": "101",
        "test_a_header_of_a_stranger_is_no_address": "101",
    },
    "server/gateway/test_relay.py": {
        "test_the_audit_log_says_what_was_decided_and_nothing_that_was_said": "39",
        "test_the_query_goes_on_octet_by_octet": "prov-109",
    },
    "server/gateway/test_tasks.py": {
        "test_a_task_that_does_not_exist_is_one_404": "91",
        "test_pages_of_other_sites_change_nothing": "73",
    },
    "server/test_listen.py": {
        "test_a_path_in_the_access_log_has_no_query": "39",
    },
    "sign/test_provenance_attacks.py": {
        "test_the_attack_is_refused_without_any_connection": (
            "1 2 3 4 5 6 7 8 10 prov-001..067 prov-072 prov-074 prov-077"
        ),
        "test_ok_01_a_valid_es256_receipt_is_accepted": "prov-ok-01",
        "test_ok_02_a_valid_eddsa_receipt_is_accepted_where_ed25519_is": "prov-ok-02",
        "test_ok_03_ps256_with_2048_bits_is_accepted_where_it_is_allowed": "prov-ok-03",
        "test_ok_04_content_beside_its_receipt_is_accepted_octet_by_octet": "prov-ok-04",
        "test_ok_06_the_edges_of_time_are_inside": "prov-ok-06",
        "test_ok_07_a_set_with_unknown_members_and_keys_is_accepted_and_they_are_left_out": "prov-ok-07",
    },
    "sign/test_receipt.py": {
        "test_the_step_that_refuses_is_in_the_clause": "9",
        "test_a_stream_of_another_request_or_task_is_refused": "9",
        "test_a_receipt_that_was_seen_is_stale_and_its_id_is_kept_as_long_as_it_could_count": "29",
    },
    "uri/test_ai.py": {
        "test_what_could_be_read_two_ways_has_no_canonical_form": "17 19 20 21",
        "test_a_currency_sign_is_recognised_as_a_damaged_ampersand": "41",
        "test_a_damaged_ampersand_is_recognised_encoded_too": "41 prov-109",
    },
    "uri/test_ai_map.py": {
        "test_a_gateway_knows_itself_by_any_spelling_of_its_name": "18",
        "test_an_attack_on_the_mapping_is_refused": "prov-105..108 prov-110",
        "test_a_fragment_is_never_mapped": "prov-109",
        "test_the_example_of_the_draft_is_mapped_byte_for_byte": "prov-ok-10",
    },
    "uri/test_ai_typed.py": {
        "test_an_address_in_disguise_is_an_address": "19",
        "test_a_warning_names_its_label_and_the_scripts_in_it": "19",
        "test_an_unseen_character_in_a_name_is_warned_of_whichever_form_was_typed": "19",
        "test_the_damaged_ampersand_of_the_draft_is_recognised": "41",
    },
    "uri/test_redact_log.py": {
        "test_no_message_and_no_argument_shows_a_key": "39",
    },
    "ai/endpoint/test_fleet_proofs.py": {
        "test_attack_65_of_10_000_copies_at_two_processes_one_is_accepted": "65",
        "test_a_store_that_came_back_empty_makes_older_proofs_stale": "65",
        "test_a_rotated_secret_costs_no_proof_and_a_revoked_one_all_of_them": "64",
        "test_a_store_that_cannot_be_reached_is_503_and_nobody_is_let_in": "66",
    },
    "ai/endpoint/test_route_attacks.py": {
        "test_attack_108_a_request_with_two_meanings_ends_its_connection": "108",
        "test_attack_108_a_host_of_a_proxy_changes_no_url": "108",
        "test_attack_108_http_1_0_has_one_answer_and_a_closed_connection": "108",
    },
    "server/gateway/test_route_attacks.py": {
        "test_attack_108_a_request_with_two_meanings_is_refused_at_the_routes_for_people": "108",
        "test_attack_108_a_host_of_a_stranger_is_in_no_redirect": "108",
        "test_attack_108_http_1_0_has_one_answer_at_the_routes_for_people": "108",
    },
    "ai/endpoint/test_postgres.py": {
        "test_of_many_machines_one_begins": "76",
        "test_who_was_taken_for_dead_changes_nothing": "95",
    },
    "ai/test_fleet_keys.py": {
        "test_attack_103_a_revoked_key_signs_nothing_after_a_minute": "103",
        "test_attack_103_a_machine_without_the_list_signs_nothing": "103",
        "test_the_thread_that_reads_the_list_survives_what_it_does_not_expect": "103",
    },
    "sign/test_fleet_secrets.py": {
        "test_a_revoked_secret_opens_nothing_after_a_minute": "104",
    },
    "store/test_shared.py": {
        "test_two_processes_share_a_file": "65",
        "test_many_calls_at_once_use_few_connections": "65",
        "test_no_mark_and_no_value_is_dropped_for_lack_of_room": "66",
        "test_a_valkey_server_without_memory_drops_nothing": "66",
    },
}

_RANGE = re.compile(r"prov-(\d{3})\.\.(\d{3})")


def ids(text: str) -> Iterator[str]:
    """The ids that a text names, ranges written out."""
    for word in text.split():
        span = _RANGE.fullmatch(word)
        if span is None:
            yield word
        else:
            yield from (f"prov-{number:03}" for number in range(int(span[1]), int(span[2]) + 1))


def proven() -> dict[str, list[str]]:
    """Id -> the tests that hold it."""
    found: dict[str, list[str]] = {}
    for file, tests in PROOFS.items():
        for test, text in tests.items():
            for name in ids(text):
                found.setdefault(name, []).append(f"{file}::{test}")
    return found


def every_id() -> set[str]:
    return {
        *(str(number) for number in range(1, ROWS + 1)),
        *(f"prov-{number:03}" for number in range(1, ATTACKS + 1)),
        *(f"prov-ok-{number:02}" for number in range(1, CONTROLS + 1)),
    }


def test_every_attack_has_a_test() -> None:
    assert set(proven()) | IN_PROGRESS == every_id()
    assert not set(proven()) & IN_PROGRESS


def test_the_ids_are_those_of_the_shared_vectors() -> None:
    vectors = load_shared("provenance_attacks.json")
    shared = {each["id"] for kind in ("attacks", "positive_controls") for each in vectors[kind]}
    assert shared == {name for name in every_id() if name.startswith("prov-")}


@as_subtests("file", PROOFS)
def test_every_named_test_exists(file: str) -> None:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    there = {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert not set(PROOFS[file]) - there


def test_no_row_is_held_by_a_test_twice() -> None:
    for tests in PROOFS.values():
        for text in tests.values():
            found = list(ids(text))
            assert len(found) == len(set(found))
