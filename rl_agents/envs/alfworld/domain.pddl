; A household: one agent goes between receptacles, opens them, moves objects and changes their state.
; Names of actions and predicates are those that ALFWorld's tools expect.
(define (domain alfred)
  (:requirements :adl :typing)
  (:types agent location receptacle object rtype otype)
  (:predicates
    (atLocation ?a - agent ?l - location)
    (receptacleAtLocation ?r - receptacle ?l - location)
    (receptacleType ?r - receptacle ?t - rtype)
    (openable ?r - receptacle)
    (opened ?r - receptacle)
    (canContain ?rt - rtype ?ot - otype)
    (objectType ?o - object ?t - otype)
    (objectAtLocation ?o - object ?l - location)
    (inReceptacle ?o - object ?r - receptacle)
    (pickupable ?o - object)
    (holds ?a - agent ?o - object)
    (holdsAny ?a - agent)
    (cleanable ?o - object)
    (isClean ?o - object)
    (heatable ?o - object)
    (isHot ?o - object)
    (coolable ?o - object)
    (isCool ?o - object)
    (sliceable ?o - object)
    (isSliced ?o - object)
    (toggleable ?o - object)
    (isToggled ?o - object)
    (checked ?x)                ; keeps actions that change nothing: one without an effect is no action
  )

  (:action GotoLocation
    :parameters (?a - agent ?lStart - location ?lEnd - location ?r - receptacle)
    :precondition (and (atLocation ?a ?lStart) (receptacleAtLocation ?r ?lEnd))
    :effect (and (not (atLocation ?a ?lStart)) (atLocation ?a ?lEnd)))

  (:action OpenObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (openable ?r) (not (opened ?r)))
    :effect (opened ?r))

  (:action CloseObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (openable ?r) (opened ?r))
    :effect (not (opened ?r)))

  (:action PickupObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (or (not (openable ?r)) (opened ?r))
      (inReceptacle ?o ?r) (pickupable ?o) (not (holdsAny ?a)))
    :effect (and
      (not (inReceptacle ?o ?r)) (not (objectAtLocation ?o ?l))
      (holds ?a ?o) (holdsAny ?a)))

  (:action PutObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype)
    :precondition (and
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (or (not (openable ?r)) (opened ?r))
      (holds ?a ?o) (objectType ?o ?ot) (receptacleType ?r ?rt) (canContain ?rt ?ot))
    :effect (and
      (not (holds ?a ?o)) (not (holdsAny ?a))
      (inReceptacle ?o ?r) (objectAtLocation ?o ?l)))

  ; The appliance need not be open, and the object stays in the hand.
  (:action CleanObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (receptacleType ?r SinkBasinType)
      (holds ?a ?o) (cleanable ?o))
    :effect (isClean ?o))

  (:action HeatObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (receptacleType ?r MicrowaveType)
      (holds ?a ?o) (heatable ?o))
    :effect (and (isHot ?o) (not (isCool ?o))))

  (:action CoolObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (receptacleType ?r FridgeType)
      (holds ?a ?o) (coolable ?o))
    :effect (and (isCool ?o) (not (isHot ?o))))

  ; A lamp stays on: there is no switching off.
  (:action ToggleObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (inReceptacle ?o ?r) (toggleable ?o))
    :effect (isToggled ?o))

  (:action SliceObject
    :parameters (?a - agent ?l - location ?co - object ?ko - object)
    :precondition (and
      (atLocation ?a ?l) (objectAtLocation ?co ?l) (sliceable ?co) (holds ?a ?ko)
      (or (objectType ?ko KnifeType) (objectType ?ko ButterKnifeType)))
    :effect (isSliced ?co))

  (:action examineReceptacle
    :parameters (?a - agent ?r - receptacle)
    :precondition (exists (?l - location) (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l)))
    :effect (checked ?r))

  (:action examineObject
    :parameters (?a - agent ?o - object)
    :precondition (or
      (holds ?a ?o)
      (exists (?l - location ?r - receptacle) (and
        (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (or (not (openable ?r)) (opened ?r))
        (inReceptacle ?o ?r))))
    :effect (checked ?o))

  (:action look
    :parameters (?a - agent ?l - location)
    :precondition (atLocation ?a ?l)
    :effect (checked ?l))

  (:action inventory
    :parameters (?a - agent)
    :precondition ()
    :effect (checked ?a))

  (:action help
    :parameters (?a - agent)
    :precondition ()
    :effect (checked ?a))
)
