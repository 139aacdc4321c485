-- Which rows a choice shows: what is NULL or false holds back nothing. `matching_cases` is made by
-- `matching_cases.sql`.
($outcome IS NULL OR outcome = $outcome)
    AND ($variant IS NULL OR variant = $variant)
    AND ($tag IS NULL OR list_contains(tags, $tag))
    AND ($assertion IS NULL OR list_contains(unmet, $assertion))
    AND (NOT $changed OR change IS NOT NULL)
    AND (NOT $searched OR number IN (SELECT number FROM matching_cases))
